"""Find whose parameter it is that a function got with other values: people look for it by its name in the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve
from probe_format.errors import FormatError

from probe_analysis.align import Pair
from probe_analysis.calls import Run, Side

from .call_diff import CallDiff

__all__ = ["with_owner"]

_NUMBERS = ("dtype", "shape", "Max", "Min", "Mean", "Norm", "md5")

Tensor = Mapping[str, Any]


def with_owner(run: Run, calls: Sequence[CallDiff]) -> tuple[list[CallDiff], CallDiff | None]:
    """Return the calls, and the first of them with a cause: a module, where it is that this has another parameter.

    The functions inside of a module are completed before it, so that they are the first to get the parameter.

    run: the first run.
    """
    found = list(calls)
    first = next((n for n, call in enumerate(found) if call.cause is not None), None)
    if first is None:
        return found, None
    call = found[first]
    if call.cause != "input" or call.pair.a.backward:
        return found, call
    got = [v.slot for v in call.values if v.side == "in" and v.distance.relative > call.entry]
    named = {each.pair.a.name: n for n, each in enumerate(found)}
    for name in run.above(call.pair.a.name):
        n = named.get(name)
        if n is not None and _explains(found[n], call, got):
            found[first] = evolve(call, cause=None)
            found[n] = evolve(found[n], cause="parameters")
            return found, found[n]
    return found, call


def _explains(module: CallDiff, call: CallDiff, slots: Sequence[str]) -> bool:
    """Return whether what a call got in these slots are other parameters of a module, which got the same inputs."""
    if any(v.side == "in" and v.distance.relative > call.entry for v in module.values):
        return False
    apart = {value.slot for value in module.values if value.side == "parameter"}
    if not apart or not slots:
        return False
    try:
        owned = [pair for slot, pair in _tensors(module.pair, "parameter") if slot in apart]
        taken = dict(_tensors(call.pair, "in"))
    except FormatError:
        return False
    return all(slot in taken and any(_same(taken[slot], pair) for pair in owned) for slot in slots)


def _tensors(pair: Pair, side: Side) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """Yield the tensors of a side that both calls have, by slot."""
    others = {value.slot: value.tensor for value in pair.b.read().side(side)}
    for value in pair.a.read().side(side):
        if value.slot in others:
            yield value.slot, (value.tensor, others[value.slot])


def _same(ones: tuple[Tensor, Tensor], twos: tuple[Tensor, Tensor]) -> bool:
    """Return whether two tensors are one in each of the runs, as far as their numbers tell."""
    return all(one.get(key) == two.get(key) for one, two in zip(ones, twos, strict=True) for key in _NUMBERS)
