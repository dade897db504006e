"""Find out where a tensor belongs that a function was the first to get with other values.

A parameter is looked for by its name in the model, and an input at the outermost module that got it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve
from probe_format.errors import FormatError
from probe_format.schema import Side

from probe_analysis.align.alignment import Pair
from probe_analysis.calls.call import GRADIENTS

from .call_diff import CallDiff, Cause

_GOT: tuple[Side, ...] = ("in", "parameter")
_NUMBERS = ("dtype", "shape", "Max", "Min", "Mean", "Norm", "md5")

Marks = tuple[Any, ...]


def with_owner(calls: Sequence[CallDiff]) -> tuple[list[CallDiff], CallDiff | None]:
    """Return the calls, and the first with a cause: a module, where this has another parameter, or got the input.

    The functions inside of a module are completed before it, so that they are the first to get what it has and gets.
    """
    found = list(calls)
    first = next((n for n, call in enumerate(found) if call.cause is not None), None)
    if first is None:
        return found, None
    call = found[first]
    if call.pair.a.kind in GRADIENTS:
        taker = next((n for n, each in enumerate(found) if _takes(each, call)), None)
        if taker is None:
            return found, call
        found[first], first = evolve(call, cause=None), taker
        call = found[first] = evolve(found[first], cause="input")
    if call.cause != "input":
        return found, call
    got: Sequence[str] = [v.slot for v in call.values if v.side == "in" and v.distance.relative > call.entry]
    named = {each.pair.a.name: n for n, each in enumerate(found)}
    owner = first
    cause: Cause = "input"
    for name in call.pair.a.modules:
        n = named.get(name)
        side, got = (None, got) if n is None else _side(found[n], call, got)
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


def _side(module: CallDiff, call: CallDiff, slots: Sequence[str]) -> tuple[Side | None, Sequence[str]]:
    """Return as what a module has the tensors that a call inside of it got in these slots; None where it has not all.

    As inputs, and then the slots of those; or as parameters, where it got the same inputs.
    """
    try:
        owned: dict[Side, list[Marks]] = {}
        for side in _GOT:
            beyond = call.entry if side == "in" else 0.0
            found = (v for v in module.values if v.side == side and v.distance.relative > beyond)
            apart = {v.slot for v in found}
            marks = _marks(module.pair, side) if apart else {}
            owned[side] = [mark for slot, mark in marks.items() if slot in apart]
        taken = _marks(call.pair, "in")
    except FormatError:
        return None, slots
    sides = [next((s for s in _GOT if slot in taken and taken[slot] in owned[s]), None) for slot in slots]
    if not sides or None in sides or (owned["in"] and "in" not in sides):
        return None, slots
    inputs = [slot for slot, side in zip(slots, sides, strict=True) if side == "in"]
    return ("in", inputs) if inputs else ("parameter", slots)


def _marks(pair: Pair, side: Side) -> dict[str, Marks]:
    """Return the numbers of each tensor that both calls have, in either: what tells it from others."""
    both = pair.tensors(side)
    return {slot: tuple(x.get(key) for x in (one, two) for key in _NUMBERS) for slot, one, two in both}
