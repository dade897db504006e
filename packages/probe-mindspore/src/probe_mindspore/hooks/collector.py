"""Build the collector of MindSpore's calls: how it taps gradients, finds parameters, knows what collectives write."""

import functools
from collections.abc import Sequence
from typing import Any

import mindspore
from mindspore.communication import comm_func
from probe_format.values import ValuePath
from probe_format.write import Coverage
from probe_runtime.collect import Collectives, Collector, EventStream, Gradients, PendingWork, Plan, Recorder
from probe_runtime.describe import Leaf
from probe_runtime.patching import Function, Held, listening, place
from probe_runtime.select import NameFilter

from probe_mindspore.module_kind import ModuleKind

from . import autograd, gradients

_MINT = "MintDistributed."

# Arguments of mint.distributed that are only written to, so that their values before are meaningless: position, name.
_RECEIVES = {
    "all_gather": (0, "tensor_list"),
    "all_gather_into_tensor": (0, "output_tensor"),
    "all_gather_into_tensor_uneven": (0, "output"),
    "recv": (0, "tensor"),
    "irecv": (0, "tensor"),
    "gather": (1, "gather_list"),
    "gather_into_tensor": (0, "output_tensor"),
    "scatter": (0, "tensor"),
    "scatter_tensor": (0, "output_tensor"),
    "reduce_scatter": (0, "output"),
    "reduce_scatter_tensor": (0, "output"),
    "reduce_scatter_tensor_uneven": (0, "output"),
    "all_to_all": (0, "output_tensor_list"),
    "all_to_all_single": (0, "output"),
}
RECEIVES = {_MINT + name: place for name, place in _RECEIVES.items()}
"""Name as in the list of functions -> (position, name) of the argument that is only written to."""


_OWNERS = (mindspore._c_expression, comm_func)
#: The classes of the handles that asynchronous collectives return.
HANDLES = tuple(cls for owner in _OWNERS if isinstance(cls := getattr(owner, "CommHandle", None), type))


def results(key: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> list[Any]:
    """Return the results of a finished collective: its arguments, and the values that comm_func returns besides."""
    values = [*args, *kwargs.values()]
    if key.startswith(_MINT):
        return values
    returned = out if isinstance(out, tuple) else (out,)
    return [*values, *(v for v in returned if v is not None and not isinstance(v, HANDLES))]


def watched_waits(pending: PendingWork) -> Held:
    """Let ``pending`` notice every ``CommHandle.wait`` until the result is undone."""
    places = [place(cls, "wait", _waiting) for cls in HANDLES if "wait" in vars(cls)]
    return listening(_pending, pending, places)


_pending: list[PendingWork] = []


def _waiting(original: Function) -> Function:
    @functools.wraps(original)
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(work, *args, **kwargs)
        for pending in list(_pending):
            if pending.waiting:
                pending.waited(work)
        return result

    return wait


def collector_for(
    plan: Plan,
    stream: EventStream,
    leaf: Leaf,
    coverage: Coverage,
    names: NameFilter,
    module_kind: ModuleKind,
) -> Collector:
    collectives = Collectives(RECEIVES, PendingWork(HANDLES), results)
    recorder = Recorder(plan, stream, leaf, coverage, names, _GRADIENTS, module_kind.parameters, collectives)
    return Collector(recorder, leaf, names, f"{module_kind.prefix}.")


def _flows(outputs: Sequence[tuple[ValuePath, Any]]) -> bool:
    for _, t in outputs:  # noqa: SIM110 - any() costs more calls
        if autograd.takes_gradient(t):
            return True
    return False


_GRADIENTS = Gradients(gradients.enter, gradients.attach, _flows, autograd.backward_pass)
