"""Follow rounding through the calls of two runs: how far it may bring their results apart, and how far these are."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Mapping
from itertools import islice
from statistics import median, median_high

from attrs import define, field
from probe_format.names import OPTIMIZER, with_direction
from probe_format.schema import Side, writes_into

from probe_analysis.calls.run import GRADIENTS, Call
from probe_analysis.compare.estimates import beyond, level_of
from probe_analysis.compare.level import ALONE, EXACT, GAIN, NARROW, ROUNDINGS

from .call_diff import CallDiff, Cause
from .course import Course
from .gradients import factor, own_sums
from .links import judge
from .moves import reached
from .sides import Sides, sides

_KINKED = re.compile("relu|max_?pool|hardtanh|hardsi", re.IGNORECASE)
"""Functions whose derivative jumps at a kink: elements within e of it, a share e of all, may get another gradient."""
_PRODUCT = re.compile("linear|conv|dense|matmul|mm$|dot_product", re.IGNORECASE)
_QUOTIENT = re.compile("div|sign")
"""Functions by which an optimizer may make anything of a gradient that is rounding alone.

At level L1 only the function `addcdiv` shows that an optimizer calls."""
_ALONE = 10.0
"""A divisor may be rounding alone where its smallest element is below so many times the error."""
_RECENT = 9
"""How many of the calls before count in the median of the levels."""


def expect(
    course: Course, fixed: float | None = None, noise: Mapping[str, float] | None = None
) -> list[CallDiff]:
    """Fill in the level that each call's results may have, and how many times that level they have.

    Return the calls that made different numbers from the same ones, though calls like them made the same.

    fixed: the level that each call may make by itself; None to take it from its dtype.
    noise: record -> the level at which two runs of the same program are apart; empty where that is not measured.
    """
    for each in course.calls if _rounds_products(course) else ():
        if each.pair.a.kind == "module" or _PRODUCT.search(each.pair.a.what):  # products may be inside of any
            each.floor = max(each.floor, ROUNDINGS * NARROW)
    walk, told = _Follower(course, fixed, noise or {}), sides(course)
    for each, own in zip(course.calls, told, strict=True):
        if each.changed:
            walk.see(each, own)
        else:
            walk.see_exact(each, own)
    judge(course, walk.coarsest / ROUNDINGS)
    return walk.odd


def _rounds_products(course: Course) -> bool:
    """Return whether a run rounds float32 numbers before it multiplies them, as TF32 does.

    The median of products of nearly equal numbers tells, for each kind of function: linear layers may round where
    convolutions do not.
    """
    forward = (x for x in course.calls if not x.pair.a.backward and _PRODUCT.search(x.pair.a.what))
    levels: dict[str, list[float]] = {}
    for each in islice(forward, 32):
        if _pooled(each, "in", "parameter") < NARROW / 16.0:
            levels.setdefault(each.pair.a.what, []).append(_pooled(each, "out"))
    return any(NARROW / 8.0 < median_high(of) < NARROW * 4.0 for of in levels.values())


def _pooled(each: CallDiff, *sides: Side) -> float:
    return max((level.pooled for _, level in each.levels(*sides) if not level.whole), default=0.0)


@define(eq=False)
class _Follower:
    """Go through the calls of a run in their order.

    level: the path of a module, or the name of a function's call -> the largest level in its forward pass.
    within, coarse: of a module's call, the largest level that came out inside of it, and the coarsest rounding there.
    recent, before: whether backward -> the levels of the last results, and their median.
    exact: key of calls that are alike -> how many of them are the same in both runs.
    flips: the largest share that one element has of a gradient, where elements are on the other side of a kink.
    coarsest: the coarsest rounding of a call that differs so far.
    odd: the calls that made different numbers from the same ones, though calls like them made the same.
    """

    course: Course
    fixed: float | None
    noise: Mapping[str, float]
    level: dict[str, float] = field(factory=dict)
    within: dict[str, float] = field(factory=dict)
    coarse: dict[str, float] = field(factory=dict)
    recent: dict[bool, deque[float]] = field(
        factory=lambda: {b: deque(maxlen=_RECENT) for b in (False, True)}
    )
    before: dict[bool, float] = field(factory=lambda: {False: 0.0, True: 0.0})
    exact: Counter[str] = field(factory=Counter)
    flips: float = 0.0
    coarsest: float = 0.0
    odd: list[CallDiff] = field(factory=list)

    def see(self, each: CallDiff, own: Sides) -> None:
        """Work out the level that a call's results may have, and how many times that level they have."""
        call, stem, around = each.pair.a, _stem(each.pair.a), self.course.around(each.pair.a)
        before = self.before[call.backward]
        if call.backward:
            before = max(before, self.level.get(stem, 0.0))
        self._expect(each, own, stem, around, before)
        # After a difference, indexes may differ as well.
        index = own.fresh_whole and not before
        each.given = math.inf if index else beyond(own.fresh_norm, own.fresh_rest, each.entry)
        each.made = beyond(own.norm, own.rest, each.expected)
        if call.kind in GRADIENTS:
            each.made = max(each.made, factor(self.course, each))
        self._carry(each, own, stem, around)
        odd = call.kind not in GRADIENTS and each.made > EXACT and not own.took
        if odd and all(value.side == "out" for value in each.values):
            self._note_odd(each)

    def _note_odd(self, each: CallDiff) -> None:
        """Note a call that made different numbers from the same ones, if it is not alone in its kind."""
        call = each.pair.a
        took = any(x.of_setting for x in each.arguments)
        if not took and not self.noise.get(call.name):
            # Where few modules like one call other functions, that is no other implementation.
            odd = call.name in self.course.others and len(self.course.siblings(each)) > 2
            alike = (odd and not self.course.usual(call.name)) or bool(self.exact[self.course.key(each)])
            saved = self.course.named.get(with_direction(call.name, "forward"))
            if alike and not (call.backward and saved and saved.changed):
                self.odd.append(each)

    def see_exact(self, each: CallDiff, own: Sides) -> None:
        """Note a call that is the same in both."""
        call = each.pair.a
        if call.kind in GRADIENTS:
            return
        self.exact[self.course.key(each)] += 1
        if own.unit:
            self._note_level(call, 0.0)

    def _note_level(self, call: Call, level: float) -> None:
        self.recent[call.backward].append(level)
        self.before[call.backward] = median(self.recent[call.backward])

    def _expect(self, each: CallDiff, own: Sides, stem: str, around: str | None, before: float) -> None:
        """Fill in the level that rounding has brought the run to, and the one that a call's results may have.

        before: the level of the run up to here.
        """
        call, floor = each.pair.a, self._floor(each)
        taken, jumps = max(own.got, own.parameters), 0.0
        if call.backward:
            jumps = self._flipped(call, own, stem, floor)
        if self.course.routed and self.course.is_routed(call, call.name):
            jumps = math.sqrt(max(taken, before))  # of the rows, so many are another expert's
        if "addcdiv" in call.what or (call.parent == OPTIMIZER and _QUOTIENT.search(call.what)):
            way, alone = self._moved(call, math.hypot(floor, taken))
            jumps = way if alone else reached(way, taken) / each.limit
        beside = self.within.get(around or "", 0.0)
        coarse = max(floor, self.coarsest) if call.backward else floor  # it may be summed out of sight
        each.entry = math.hypot(coarse, max(before, jumps, beside))
        each.expected = math.hypot(floor, max(taken, before, jumps, self.within.get(call.name, 0.0)))

    def _moved(self, call: Call, error: float) -> tuple[float, bool]:
        """Return the level by which a call changes the tensor that it writes into; 1 where it makes a new tensor.

        And whether elements of its divisor are rounding alone, so that the runs may differ by that level whatever the
        error is.
        """
        if not writes_into(call.name, "input_args.0"):
            return 1.0, False
        one, two = ({v.slot: v.tensor for v in self.course.run.read(call).side(x)} for x in ("in", "out"))
        was, by, now = one.get("input_args.0"), one.get("input_args.2"), two.get("output.0")
        level = None if was is None or now is None else level_of(was, now, "parameter")
        alone = False
        if by is not None:
            least, norm = by.get("Min"), by.get("Norm")
            if isinstance(least, float) and isinstance(norm, float):
                alone = abs(least) * math.sqrt(math.prod(by["shape"])) < _ALONE * error * norm
        return 1.0 if level is None else min(1.0, level.largest), alone

    def _floor(self, each: CallDiff) -> float:
        call = each.pair.a  # gradients of float32 parameters may come out of narrower numbers
        coarse = self.coarsest if call.kind in GRADIENTS else self.coarse.get(call.name, 0.0)
        sums = own_sums(self.course, call) if call.kind in GRADIENTS else 0.0
        own = max(each.floor, coarse, sums) if self.fixed is None else self.fixed / each.limit
        return math.hypot(own, self.noise.get(call.name, 0.0))

    def _carry(self, each: CallDiff, own: Sides, stem: str, around: str | None) -> None:
        """Remember the level at which a call leaves the run."""
        call, largest = each.pair.a, max(own.got, own.made)
        if around is not None:
            # What is computed in a module may be rounded to a narrower dtype than what it gives.
            coarse = each.floor, self.coarse.get(call.name, 0.0)
            self.coarse[around] = max(self.coarse.get(around, 0.0), *coarse)
        self.coarsest = max(self.coarsest, each.floor)
        if call.kind in GRADIENTS or not own.unit:
            return
        if not call.backward:
            self.level[stem] = max(self.level.get(stem, 0.0), largest)
        if around is not None:
            self.within[around] = max(self.within.get(around, 0.0), largest)
        self._note_level(call, own.middle)

    def _flipped(self, call: Call, own: Sides, stem: str, floor: float) -> float:
        """Return the level that elements make which are on the other side of a kink in the other run."""
        steps = math.sqrt(self.level.get(stem, 0.0)) if _KINKED.search(call.name) else 0.0
        if steps and beyond(own.norm, own.rest, math.hypot(floor, own.got)) > 2.0:
            self.flips = max(self.flips, own.share)
        # One element that flipped is all of a sum's error where it is large.
        rows = max(1.0, own.rows) if call.kind in GRADIENTS else 1.0
        return max(steps, self.flips * math.sqrt(rows))


def _stem(call: Call) -> str:
    """Return what the forward and the backward pass of a call have in common."""
    return call.path if call.kind != "api" else with_direction(call.name, "forward")


def score(course: Course, each: CallDiff, cause: Cause) -> float:
    """Return how far beyond the limit a call's inputs, or results, are; its siblings excuse a part of it.

    cause: ``input`` for what it got, else what it made.
    """
    given = cause == "input"
    own, others = each.given if given else each.made, course.excess_of_others(each, given=given)
    gain = ALONE if others is None else min(GAIN, max(1.0, others))
    return math.inf if math.isinf(own) else own / gain / each.limit
