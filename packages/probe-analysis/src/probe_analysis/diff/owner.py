"""Find out where a difference belongs that shows in a function first: to a module around it, or to nobody.

A parameter is looked for by its name in the model, and an input at the outermost module that got it. Memory that is
written over before anything is computed with it makes no difference.
"""

from collections.abc import Sequence

from attrs import evolve
from probe_format.errors import FormatError
from probe_format.schema import Side, only_views, writes_into
from probe_format.statistics import KEYS

from probe_analysis.align.alignment import Pair
from probe_analysis.calls.run import GRADIENTS

from .call_diff import CallDiff, Cause

_GOT: tuple[Side, ...] = ("in", "parameter")
#: What tells tensors apart.
_TELLING = ("dtype", "shape", *KEYS, "md5")

Marks = tuple[str, ...]


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


def _marks(pair: Pair, side: Side, *, apart: bool = False) -> dict[str, Marks]:
    """Return what tells each tensor that both calls have from others, in either. apart: only of those that differ."""
    both = (each for each in pair.tensors(side) if not apart or each[1] != each[2])
    return {slot: tuple(str(x.get(key)) for x in (one, two) for key in _TELLING) for slot, one, two in both}


def idle_calls(pairs: Sequence[Pair]) -> frozenset[str]:
    """Return the names of the calls of the first run whose tensors differ only where they were not written to yet.

    A buffer of `torch.empty` is cut into views, and these are written over (FSDP). What it held differs in each run.

    pairs: in the order in which the first run completed them. Their records are read anew.
    """
    found: set[str] = set()
    gone: set[Marks] = set()  # what differs between the runs, and is written over further on
    for pair in reversed(pairs):
        name = pair.a.name
        views = only_views(name)
        if not views and not writes_into(name, "input_args.0"):
            continue
        taken, given = _marks(pair, "in", apart=True), _marks(pair, "out", apart=True)
        if views and gone.issuperset(given.values()):
            found.add(name)
            gone.update(taken.values())
        elif not views and not given:
            gone |= {marks for slot, marks in taken.items() if writes_into(name, slot)}
    return frozenset(found)
