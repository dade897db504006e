"""Say in a sentence what differs first, and where: a call that gives another result, or that only one run made."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from attrs import frozen
from probe_format.names import with_direction
from probe_format.schema import Side

from probe_analysis.align.alignment import Alignment
from probe_analysis.calls.run import BETWEEN_RANKS, GRADIENTS, AtCall, Call, Run

from .call_diff import CallDiff

if TYPE_CHECKING:
    from .diff import RunDiff

State = Literal["same", "within tolerance", "different"]


@frozen(eq=False)
class Verdict(AtCall):
    """Say whether two runs are the same and, where they are not, what differs first.

    state: whether every number is the same, or the same within the tolerance, or one is not.
    call: the first call that makes a difference, in the first run (in the second where only that has it).
    found: how the two calls differ; None for a call that only one run has.
    place: how many calls of its rank come before the first that shows it, in the first run.
    """

    state: State
    sentence: str
    call: Call | None = None
    found: CallDiff | None = None
    place: float = math.inf

    @property
    def received(self) -> bool:
        """Return whether the finding is what came from other ranks."""
        found = self.found
        return found is not None and found.cause == "output" and found.pair.a.name.startswith(BETWEEN_RANKS)


def verdict_of(found: CallDiff, state: State = "different") -> str:
    """Return the sentence for a call that differs by its own cause, or at all."""
    call, other = found.pair.a, found.pair.b
    name = call.name if call.name == other.name else f"{call.name} (there {other.name})"
    if found.cause == "arguments":
        several = f", and {len(found.arguments) - 1} more" if len(found.arguments) > 1 else ""
        return f"{name} is called with other arguments: {found.arguments[0]}{several}."
    if found.cause == "parameters":
        return f"{name} has other parameters: {_parameters(found)}. What it was given before agrees."
    if found.cause == "input":
        what = "gradient" if call.backward else "input"
        worst = found.worst("in")
        role = "" if worst is None else call.role(worst.slot)
        if role in ("running_mean", "running_var") and call.parent is not None:
            return (
                f"{name} gets another {role}, a buffer of {call.parent}: {_worst(found, 'in')}, though every recorded "
                "call before it agrees. It was changed before this step, or by code that is not recorded."
            )
        where = f"inside {call.parent}" if call.parent is not None else "before it"
        return (
            f"{name} gets another {role or what}: {_worst(found, 'in')}, though every recorded call before it agrees. "
            f"Look at what is not recorded {where}: code between the calls, a buffer, the data."
        )
    if state == "within tolerance":
        return f"The first difference at all is in {name}: {_worst(found, 'in', 'parameter', 'out')}."
    if call.kind in GRADIENTS:
        return (
            f"{name} has other gradients: {_worst(found, 'out')}, though every recorded call before it agrees. Look at "
            "what else uses the parameters (tied weights), at gradients that are left from before (zero_grad), and at "
            "what changes gradients outside of the calls."
        )
    if found.blind:
        return (
            f"{name} is the first with another result: {_worst(found, 'out')}. What it was given is not recorded "
            "(data_mode), so that it may come from before it."
        )
    took = "the gradients that it gets" if call.backward else "its inputs"
    gave = "those that it passes on do" if call.backward else "its output does"
    return f"{name} makes the difference: {took} agree, {gave} not: {_worst(found, 'out')}."


def _parameters(found: CallDiff) -> str:
    """Return the parameter that is the farthest apart, by its name in the model, and how many more there are."""
    worst = found.worst("parameter")
    if worst is None:
        return ""
    name = ".".join(part for part in (found.pair.a.path, worst.slot.removeprefix("parameters.")) if part)
    more = sum(value.side == "parameter" for value in found.values) - 1
    return f"{name} {worst.distance.what}" + (f", and {more} more" if more else "")


def _worst(found: CallDiff, *sides: Side) -> str:
    worst = found.worst(*sides)
    return "" if worst is None else f"{worst.slot} {worst.distance.what}"


def missing_call(found: Alignment, a: Run, b: Run, first: CallDiff | None, limit: float) -> Verdict | None:
    """Return the call that only one run has, where it comes before the first other difference and explains it."""
    unreached = frozenset().union(*found.beyond(a, b))
    candidates = [item for item in _places(found) if item[1].name not in unreached]
    alone = {id(call) for _, call, _ in candidates}
    paired = {id(call) for pair in found.pairs for call in (pair.a, pair.b)}
    modules = (call for pair in found.pairs for call in (pair.a, pair.b) if call.kind == "module")
    matched = {(id(call.rank), call.path) for call in modules}
    for place, call, is_a in candidates:
        if place > limit:
            break
        run, there, which, other = (a, b, "first", "second") if is_a else (b, a, "second", "first")
        if call.backward and call.kind in ("module", "api"):
            name = with_direction(call.name, "forward")
            forward = run.by_name.get(name)
            if id(forward) in paired:
                sentence = f"No gradient comes to {name} in the {other} run; in the {which} one it does."
                if not any(each.backward for each in there.calls):
                    why = "no backward pass, or data_mode left them out"
                    sentence += f" It has no backward records at all: {why}."
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


def _places(found: Alignment) -> list[tuple[float, Call, bool]]:
    """Return each call that only one run has: its place in the order of the first, and whether that has it."""
    orders = sorted((pair.b.order, pair.a.order) for pair in found.pairs)
    places: list[tuple[float, Call, bool]] = [(call.order, call, True) for call in found.only_a]
    for call in found.only_b:
        at = bisect.bisect_left(orders, (call.order,))
        places.append((orders[at][1] - 0.5 if at < len(orders) else math.inf, call, False))
    return sorted(places, key=lambda item: item[0])
