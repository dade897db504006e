"""Judge whether ranks agree where they should, and put in words where they do not, or where some lack a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from probe_format.names import CLIP_GRAD, OPTIMIZER
from probe_format.values import plain

from probe_analysis.calls.run import GRADIENTS, Call
from probe_analysis.compare.distance import distance

from .disagreement import Disagreement, odd_of, ranks_text
from .expected import Expected
from .held import MOST, in_order, lowest, ranks_in
from .marks import parted
from .meshes import global_form
from .side_by_side import Missing

#: Takes which ranks hold what; returns the ranks at fault where no majority tells, and a further sentence.
More = Callable[[Mapping[int, Mapping[str, object]]], tuple[int, str]]


def judged(
    step: str, call: Call, expected: Expected, tolerance: float, more: More | None = None
) -> Disagreement | bool:
    """Return where ranks disagree; else whether they were compared, which takes two ranks with numbers.

    call: as the first of the ranks makes it. tolerance: the level of difference up to which they agree.
    """
    reason, slot, held = expected.reason, expected.slot, expected.held
    if held is None:
        detail = f"{slot}: more than {MOST['held']} different ones"
        return _said(step, call, expected, [], 0, detail, detail)
    if len(held) < 2:
        return any(bits.bit_count() > 1 for bits in held)
    key = _KEYS.get(reason)
    groups = parted(held, 0.0 if key else max(tolerance, expected.tolerance), key)
    if sum(map(int.bit_count, groups)) < 2:
        return False
    if len(groups) < 2:
        return True
    most, other = groups[0], groups[-1]
    one, two = (_first(held, bits) for bits in (other, most))
    said = f"{plain(one)!r} against {plain(two)!r}" if reason == "argument" else distance(one, two).what
    role = call.role(slot)
    words = f"{slot} ({role})" if role else slot
    against = f"on {ranks_text(ranks_in(other))} against {ranks_text(ranks_in(most))}"
    detail = f"{words} {against}: {said}"
    lonely, further = more(held) if more else (0, "")
    odd = odd_of(groups) or lonely
    return _said(step, call, expected, groups, odd, detail, f"{detail}. {further}" if further else detail)


def _said(
    step: str, call: Call, expected: Expected, groups: list[int], odd: int, detail: str, words: str
) -> Disagreement:
    place = _PLACES.get(call.parent or "", "")
    inside = f", inside {call.parent}," if call.parent else ""
    kind = "mode" if call.role(expected.slot) == "training" else expected.reason
    sentence = f"{call.name}{_SAYS[kind].format(where=place, inside=inside)}: {words}".rstrip(".") + "."
    parting = tuple(map(ranks_in, groups))
    return Disagreement(step, call, expected.slot, expected.reason, parting, ranks_in(odd), detail, sentence)


def _first(held: Mapping[int, Mapping[str, object]], bits: int) -> Mapping[str, object]:
    """Return what the lowest of some ranks holds."""
    return next(tensor for each, tensor in held.items() if each >> lowest(bits) & 1)


def absence(step: str, each: Missing, call: Call, *, waits: bool = True) -> Disagreement:
    """Return the disagreement that some ranks lack a call.

    call: as the first rank that makes it has it. waits: whether the ranks that make it wait for the others.
    """
    absent, present = ranks_text(ranks_in(each.absent)), ranks_text(ranks_in(each.present))
    if call.backward or call.kind in GRADIENTS:
        have = "has" if each.absent.bit_count() == 1 else "have"
        what = f"{absent} {have} no {call.name}, which {present} made"
        then = "A reduction of its gradients waits for ever, or takes in zeros."
    else:
        group = ranks_text(ranks_in(each.group)).partition(" ")[2]
        what = f"{call.name}{each.took} is called on {present}, of the group {group}, and has no "
        what += f"counterpart on {absent}"
        then = "The others wait for it, or pair with another call: the run can hang." if waits else _NO_WAIT
    what = what[0].upper() + what[1:]
    groups = in_order([each.present, each.absent])
    odd = ranks_in(odd_of(groups) or each.absent)
    return Disagreement(step, call, "", "call", tuple(map(ranks_in, groups)), odd, what, f"{what}. {then}")


_NO_WAIT = (
    "No collective call is recorded inside of it: others wait only where its gradients are reduced. What some ranks "
    "alone evaluate is no fault."
)
_KEYS = {"form": global_form, "argument": repr}
_SAYS = {
    "weight": " has other weights on some replicas",
    "update": " {where}gets other numbers on some replicas",
    "argument": "{inside} is called with other arguments on some replicas",
    "mode": "{inside} is in eval mode on some replicas and in training mode on others",
    "buffer": "{inside} has another buffer on some replicas",
    "constant": "{inside} gets another constant on some replicas (a buffer, a table), the same in each step",
    "collective": " gives the ranks of its group other results",
    "placement": " has a DTensor that differs between ranks that hold the same part",
    "form": " has a DTensor that the ranks describe in different ways",
    "computed": " returns something else for the same arguments",
    "asked": " differs between ranks",
}


_PLACES = {OPTIMIZER: "in the optimizer's step ", CLIP_GRAD: "in the clipping of the gradients "}
