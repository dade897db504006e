"""Build the collector of MindSpore's calls, with its gradients, collectives and parameters of a Cell."""

from collections.abc import Sequence
from typing import Any

from probe_format.values import ValuePath
from probe_format.write import Coverage
from probe_runtime.collect import Collectives, Collector, EventStream, Gradients, PendingWork, Plan, Recorder
from probe_runtime.describe import Leaf
from probe_runtime.select import NameFilter

from probe_mindspore.module_kind import ModuleKind

from . import autograd, gradients
from .collectives import HANDLES, PREFIXES, RECEIVES, results


def collector_for(
    plan: Plan,
    stream: EventStream,
    leaf: Leaf,
    coverage: Coverage,
    names: NameFilter,
    module_kind: ModuleKind,
) -> Collector:
    collectives = Collectives(PREFIXES, RECEIVES, PendingWork(HANDLES), results)
    recorder = Recorder(plan, stream, leaf, coverage, names, _GRADIENTS, module_kind.parameters, collectives)
    return Collector(recorder, leaf, names, f"{module_kind.prefix}.")


def _flows(outputs: Sequence[tuple[ValuePath, Any]]) -> bool:
    for _, t in outputs:  # noqa: SIM110 - any() costs more calls
        if autograd.takes_gradient(t):
            return True
    return False


_GRADIENTS = Gradients(gradients.enter, gradients.attach, _flows, autograd.backward_pass)
