"""Find out where a tensor belongs that a function was the first to get with other values.

A parameter is looked for by its name in the model, and an input at the outermost module that got it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve
from probe_format.errors import FormatError

from probe_analysis.align import Pair
from probe_analysis.calls import Run, Side

from .call_diff import CallDiff, Cause

__all__ = ["with_owner"]

_NUMBERS = ("dtype", "shape", "Max", "Min", "Mean", "Norm", "md5")

Tensor = Mapping[str, Any]


def with_owner(run: Run, calls: Sequence[CallDiff]) -> tuple[list[CallDiff], CallDiff | None]:
    """Return the calls, and the first with a cause: a module, where this has another parameter, or got the input.

    The functions inside of a module are completed before it, so that they are the first to get what it has and gets.

    run: the first run.
    """
    found = list(calls)
    first = next((n for n, call in enumerate(found) if call.cause is not None), None)
    if first is None:
        return found, None
    call = found[first]
    if call.pair.a.kind == "parameters_grad":
        taker = next((n for n, each in enumerate(found) if _takes(each, call)), None)
        if taker is None:
            return found, call
        found[first], first = evolve(call, cause=None), taker
        call = found[first] = evolve(found[first], cause="input")
    if call.cause != "input":
        return found, call
    got = [v.slot for v in call.values if v.side == "in" and v.distance.relative > call.entry]
    named = {each.pair.a.name: n for n, each in enumerate(found)}
    owner = first
    cause: Cause = "input"
    for name in run.above(call.pair.a.name):
        n = named.get(name)
        side = None if n is None else _side(found[n], call, got)
        if n is not None and side is not None:
            owner, cause = n, "parameters" if side == "parameter" else "input"
        if side != "in":  # what did not come into this module did not come from around it
            break
    found[first] = evolve(call, cause=None)
    found[owner] = evolve(found[owner], cause=cause)
    return found, found[owner]


def _takes(call: CallDiff, gradients: CallDiff) -> bool:
    """Return whether a backward call gets another gradient, and parameters' gradients of its module follow from it.

    A module's parameters may have their gradients before its own backward call is completed.
    """
    one, two = call.pair.a, gradients.pair.a
    if not (one.backward and one.kind in ("module", "api") and one.path == two.path and one.path):
        return False
    return any(value.side == "in" and value.distance.relative > gradients.entry for value in call.values)


def _side(module: CallDiff, call: CallDiff, slots: Sequence[str]) -> Side | None:
    """Return as what a module has the tensors that a call inside of it got in these slots; None where it has not all.

    As inputs, or as parameters where it got the same inputs.
    """
    far = [value for value in module.values if value.side == "in" and value.distance.relative > call.entry]
    side: Side = "in" if far else "parameter"
    apart = {value.slot for value in module.values if value.side == side}
    if not apart or not slots:
        return None
    try:
        owned = [pair for slot, pair in _tensors(module.pair, side) if slot in apart]
        taken = dict(_tensors(call.pair, "in"))
    except FormatError:
        return None
    return side if all(slot in taken and any(_same(taken[slot], pair) for pair in owned) for slot in slots) else None


def _tensors(pair: Pair, side: Side) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """Yield the tensors of a side that both calls have, by slot."""
    others = {value.slot: value.tensor for value in pair.b.read().side(side)}
    for value in pair.a.read().side(side):
        if value.slot in others:
            yield value.slot, (value.tensor, others[value.slot])


def _same(ones: tuple[Tensor, Tensor], twos: tuple[Tensor, Tensor]) -> bool:
    """Return whether two tensors are one in each of the runs, as far as their numbers tell."""
    return all(one.get(key) == two.get(key) for one, two in zip(ones, twos, strict=True) for key in _NUMBERS)
