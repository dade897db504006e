"""Find the call that only one of two runs made, where that is the first difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from probe_format.names import with_direction

from probe_analysis.align.alignment import Alignment
from probe_analysis.calls.call import GRADIENTS, Call
from probe_analysis.calls.run import Run

from .call_diff import CallDiff
from .verdict import Verdict

if TYPE_CHECKING:
    from .diff import RunDiff


def missing_call(found: Alignment, a: Run, b: Run, first: CallDiff | None, limit: float) -> Verdict | None:
    """Return the call that only one run has, where it comes before the first other difference and explains it."""
    candidates = _places(found.only_a, a, found, is_a=True)
    candidates += _places(found.only_b, b, found, is_a=False)
    candidates.sort(key=lambda item: item[0])
    unreached = frozenset().union(*found.beyond(a, b))
    candidates = [item for item in candidates if item[1].name not in unreached]
    alone = {id(call) for _, call, _, _ in candidates}
    paired = {id(call) for pair in found.pairs for call in (pair.a, pair.b)}
    modules = (call for pair in found.pairs for call in (pair.a, pair.b) if call.kind == "module")
    matched = {(id(call.rank), call.path) for call in modules}
    for place, call, run, is_a in candidates:
        if place > limit:
            break
        which, other = ("first", "second") if is_a else ("second", "first")
        if call.backward and call.kind in ("module", "api"):
            name = with_direction(call.name, "forward")
            forward = run.by_name.get(name)
            if id(forward) in paired:
                sentence = f"No gradient comes to {name} in the {other} run; in the {which} one it does."
                if not any(each.backward for each in (b if is_a else a).calls):
                    sentence += (
                        " It has no backward records at all: no backward pass, or data_mode left them out."
                    )
                return Verdict("different", sentence, call, place=place)
            if forward is not None and first is not None and _takes_gradients(first):
                return _alone(forward, run, which, alone, first, place)
        elif call.kind in GRADIENTS and (id(call.rank), call.path) in matched:
            sentence = f"{call.name} has gradients in the {which} run alone."
            return Verdict("different", sentence, call, place=place)
        elif first is not None and not first.pair.a.backward and call.kind in ("module", "api"):
            return _alone(call, run, which, alone, first, place)
    return None


def alone_before(earlier: Sequence[RunDiff]) -> str:
    """Return in words the first call of an earlier step that only one run has: what it wrote may be seen later."""
    for run in earlier:
        unreached = frozenset().union(*run.alignment.beyond(run.a, run.b))
        for which, calls in (("first", run.alignment.only_a), ("second", run.alignment.only_b)):
            for call in calls:
                if call.kind in ("module", "api") and not call.backward and call.name not in unreached:
                    return f" Before it, in {run.a.label}, {call.name} is called in the {which} run alone."
    return ""


def _takes_gradients(first: CallDiff) -> bool:
    """Return whether a difference came with a gradient, which may be that of a call that only one run has."""
    return first.pair.a.backward and (first.cause == "input" or first.pair.a.kind in GRADIENTS)


def _alone(call: Call, run: Run, which: str, alone: set[int], first: CallDiff, place: float) -> Verdict:
    """Return the verdict on a call, or on the outermost module around it that only one run has as well."""
    for name in call.modules:
        around = run.by_name.get(name)
        if around is None or id(around) not in alone:
            break
        call = around
    what = f"{call.name} is called in the {which} run alone"
    sentence = f"{what}; the first number that differs after it is in {first.pair.a.name}."
    return Verdict("different", sentence, call, place=place)


def _places(
    calls: Sequence[Call], run: Run, alignment: Alignment, *, is_a: bool
) -> list[tuple[float, Call, Run, bool]]:
    """Return each call with its place in the order of the first run."""
    if is_a:
        return [(call.order, call, run, True) for call in calls]
    orders = sorted((pair.b.order, pair.a.order) for pair in alignment.pairs)
    found: list[tuple[float, Call, Run, bool]] = []
    at = 0
    for call in sorted(calls, key=lambda c: c.order):
        while at < len(orders) and orders[at][0] < call.order:
            at += 1
        place = orders[at][1] - 0.5 if at < len(orders) else math.inf
        found.append((place, call, run, False))
    return found
