"""Build the collector of torch's calls: how it taps gradients, finds parameters, and knows what collectives write."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from probe_format.write import Coverage
from probe_runtime.collect import Collectives, Collector, EventStream, Gradients, PendingWork, Plan, Recorder
from probe_runtime.describe import Leaf
from probe_runtime.select import NameFilter
from torch import nn

from . import gradients

PREFIX = "Distributed."

# Arguments that only receive, so that their content before the call means nothing: (position, name).
_RECEIVES = {
    "all_gather": (0, "tensor_list"),
    "_all_gather_base": (0, "output_tensor"),
    "all_gather_into_tensor": (0, "output_tensor"),
    "recv": (0, "tensor"),
    "irecv": (0, "tensor"),
    "gather": (1, "gather_list"),
    "gather_single": (1, "gather_tensor"),
    "gather_into_tensor": (1, "gather_tensor"),
    "scatter": (0, "tensor"),
    "reduce_scatter": (0, "output"),
    "_reduce_scatter_base": (0, "output"),
    "reduce_scatter_tensor": (0, "output"),
    "all_gather_single": (0, "output_tensor"),
    "all_gather_coalesced": (0, "output_tensor_lists"),
    "reduce_scatter_single": (0, "output"),
    "all_to_all": (0, "output_tensor_list"),
    "all_to_all_single": (0, "output"),
}

RECEIVES = {PREFIX + name: place for name, place in _RECEIVES.items()}
"""Name as in the list of functions -> (position, name) of the argument that only receives."""


def collector_for(
    plan: Plan, stream: EventStream, leaf: Leaf, coverage: Coverage, names: NameFilter
) -> Collector:
    works = PendingWork(dist.Work if dist.is_available() else ())
    collectives = Collectives(RECEIVES, works)
    recorder = Recorder(plan, stream, leaf, coverage, names, _GRADIENTS, _parameters, collectives)
    return Collector(recorder, leaf, names, "Module.")


def _parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, p) for name, p in module._parameters.items() if p is not None)


_GRADIENTS = Gradients(gradients.enter, gradients.attach, gradients.flows, torch._C._current_graph_task_id)
