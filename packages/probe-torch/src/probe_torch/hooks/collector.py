"""Build the collector of torch's calls, with torch's gradients, collectives and parameters of a module."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from probe_format.write import Coverage
from probe_runtime.collect import Collectives, Collector, EventStream, Gradients, PendingWork, Plan, Recorder
from probe_runtime.describe import Leaf
from probe_runtime.select import NameFilter
from torch import nn

from . import gradients
from .collectives import PREFIX, RECEIVES


def collector_for(
    plan: Plan, stream: EventStream, leaf: Leaf, coverage: Coverage, names: NameFilter
) -> Collector:
    works = PendingWork(dist.Work if dist.is_available() else ())
    collectives = Collectives((PREFIX,), RECEIVES, works)
    recorder = Recorder(plan, stream, leaf, coverage, names, _GRADIENTS, _parameters, collectives)
    return Collector(recorder, leaf, names, "Module.")


def _parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, p) for name, p in module._parameters.items() if p is not None)


_GRADIENTS = Gradients(
    gradients.enter,
    gradients.attach,
    gradients.flows,
    torch._C._current_graph_task_id,
)
