"""Find the tensors of a quantity in a run (gradients, weights, updates, moments, activations), and a number of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from attrs import frozen
from probe_format.schema import Value

from probe_analysis.align.tree import plain_path
from probe_analysis.calls.run import Call, Run
from probe_analysis.compare.distance import as_float

Quantity = Literal["gradients", "weights", "updates", "moments", "activations"]
Statistic = Literal["Norm", "Max", "Min", "Mean", "magnitude", "rms"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
STATISTICS: tuple[Statistic, ...] = get_args(Statistic)


@frozen(eq=False)
class Found:
    """Hold one tensor of a quantity. layer, what: as in `Series`."""

    layer: str
    what: str
    call: Call
    value: Value


def tensors_of(run: Run, quantity: Quantity) -> Iterator[Found]:
    """Yield the tensors of a quantity in a run, each once: the first call of a module in the step.

    Activations are what modules return; at level L1, what functions return.
    """
    seen: set[tuple[str, str]] = set()
    modules = any(call.kind == "module" for call in run.calls)
    for call in run.calls:
        if not _has(call, quantity, modules):
            continue
        layer = plain_path(call.path) or call.what if call.kind != "api" else call.name.rpartition(".")[0]
        for value in call.read().values:
            what = _what(value, quantity)
            if what and (layer, what) not in seen:
                seen.add((layer, what))
                yield Found(layer, what, call, value)


def statistic_of(tensor: Mapping[str, Any], statistic: Statistic) -> float | None:
    """Return one number of a tensor; None where it has none, as an empty tensor."""
    if statistic == "magnitude":
        ends = [x for key in ("Max", "Min") if (x := as_float(tensor.get(key))) is not None]
        return max((abs(x) if x == x else x for x in ends), default=None)
    if statistic == "rms":
        norm, count = as_float(tensor.get("Norm")), math.prod(tensor["shape"])
        return norm / math.sqrt(count) if norm is not None and count else None
    return as_float(tensor.get(statistic))


def _has(call: Call, quantity: Quantity, modules: bool) -> bool:
    if quantity == "gradients":
        return call.kind == "parameters_grad"
    if call.backward or call.kind not in ("module", "api"):
        return False
    return call.kind == "module" if modules or quantity != "activations" else True


def _what(value: Value, quantity: Quantity) -> str:
    """Return which tensor of its layer a value is; empty for a value that is not of the quantity."""
    if quantity == "gradients":
        return value.slot.partition(".")[0]  # ``weight.0``: the record has a list for each parameter
    if quantity == "activations":
        return value.slot if value.side == "out" else ""
    return value.slot.partition(".")[2] if value.side == "parameter" else ""
