"""Define the verdict on two runs, and write its sentence: which call differs first, and by what cause."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from attrs import frozen
from probe_format.names import BETWEEN_RANKS
from probe_format.schema import Side

from probe_analysis.calls.run import GRADIENTS, AtCall, Call

from .call_diff import CallDiff, Comparison

State = Literal["same", "within tolerance", "different"]
#: From the best to the worst.
STATES: tuple[State, ...] = get_args(State)


@frozen(eq=False)
class Verdict(AtCall):
    """Say whether two runs are the same and, where they are not, what differs first.

    state: whether every number is the same, or the same within the tolerance, or one is not.
    call: the first call that makes a difference, in the first run (in the second where only that has it).
    cause: the cause of the call's difference, or ``earlier``, ``rounding`` or ``only one run``, where it has none.
    place: how many calls of its rank come before the first that shows it, in the first run.
    """

    state: State
    sentence: str
    call: Call | None = None
    cause: str = "only one run"
    place: float = math.inf

    @property
    def received(self) -> bool:
        """Return whether the finding is what came from other ranks."""
        call = self.call
        return call is not None and self.cause == "output" and call.name.startswith(BETWEEN_RANKS)


def verdict_of(how: Comparison, found: CallDiff, state: State = "different") -> str:
    """Return the sentence for a call that differs by its own cause, or at all."""
    call, other = found.pair.a, found.pair.b
    name = call.name if call.name == other.name else f"{call.name} (there {other.name})"
    if found.cause == "arguments":
        several = f", and {len(found.arguments) - 1} more" if len(found.arguments) > 1 else ""
        return f"{name} is called with other arguments: {found.arguments[0]}{several}."
    if found.cause == "parameters":
        given = found.worst("in")
        before = "What it was given before agrees"
        if given is not None:
            before = f"It gets another input as well: {_worst(found, 'in')}"
        return f"{name} has other {_kind(found)}: {_parameters(found)}. {before}."
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
    agree = _agreement(how, found)
    if found.detail:
        return f"{name} makes the difference: {took} {agree}, {found.detail}."
    return f"{name} makes the difference: {took} {agree}, {gave} not: {_worst(found, 'out')}."


def _agreement(how: Comparison, found: CallDiff) -> str:
    """Return how far a call's inputs agree: in their bits, or as far as their statistics tell."""
    if found.levels("in", "parameter"):
        return "agree within what rounding explains"
    both = how.tensors(found.pair, "in", "parameter")
    sums = [t.get("md5") for _, one, two in both for t in (one, two)]
    return "agree" if all(isinstance(each, str) for each in sums) else "agree as far as their statistics tell"


def also(found: Sequence[CallDiff]) -> str:
    """Return in words the causes in the forward pass beside the first: parameters before others."""
    rest = [each for each in found[1:] if not each.pair.a.backward]
    rest.sort(key=lambda each: each.cause != "parameters")
    words = [_parameters(each) if each.cause == "parameters" else each.pair.a.name for each in rest[:3]]
    if not words:
        return ""
    more = f", and {len(rest) - 3} more" if len(rest) > 3 else ""
    return f" Also: {'; '.join(words)}{more}."


def _kind(found: CallDiff) -> str:
    """Return whether it is the parameters of a module that differ, or its buffers."""
    worst = found.worst("parameter")
    return "buffers" if worst is not None and worst.slot.startswith("buffers.") else "parameters"


def _parameters(found: CallDiff) -> str:
    """Return the parameter that is the farthest apart, by its name in the model, and how many more there are."""
    worst = found.worst("parameter")
    if worst is None:
        return ""
    name = ".".join(part for part in (found.pair.a.path, worst.slot.partition(".")[2]) if part)
    more = sum(value.side == "parameter" for value in found.values) - 1
    return f"{name} {worst.distance.what}" + (f", and {more} more" if more else "")


def _worst(found: CallDiff, *sides: Side) -> str:
    worst = found.worst(*sides)
    return "" if worst is None else f"{worst.slot} {worst.distance.what}"
