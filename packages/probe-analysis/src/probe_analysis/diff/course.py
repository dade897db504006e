"""Index the compared calls of a run: the modules around a call, its siblings in other layers, a module's passes.

It also says what siblings tell about a call: how far they differ, and whether the other run has another
implementation of them all; and which modules have indexes (a choice of experts, say) that differ between the runs.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
from attrs import define, field
from probe_format.names import with_direction
from probe_format.schema import Side
from probe_format.statistics import WHOLE

from probe_analysis.align.alignment import Alignment
from probe_analysis.calls.compact_run import CompactRun
from probe_analysis.calls.run import Call
from probe_analysis.compare.estimates import SIDES, Column, Levels
from probe_analysis.compare.level import unit_of

from .call_diff import CallDiff


@cache
def _starred(text: str) -> str:
    return re.sub(r"\d+", "*", text)


@lru_cache(maxsize=1024)  # calls that follow one another are of the same modules
def _passes_of(module: str) -> tuple[str, str]:
    return with_direction(module, "backward"), with_direction(module, "forward")


def other_functions(alignment: Alignment, lone: Iterable[Sequence[Call]]) -> frozenset[str]:
    """Return the modules of the first run that call other functions in the second. lone: as `Alignment.lone` says."""
    seconds = {pair.b.name: pair.a.name for pair in alignment.pairs}
    only_a, only_b = ({c.parent for c in calls if c.kind == "api" and not c.backward} for calls in lone)
    return frozenset(x for x in (*only_a, *(seconds.get(name or "") for name in only_b)) if x is not None)


@define(slots=False, eq=False)
class Course:
    """Tell the place of each call among the compared calls of a run.

    run: the first of the two runs. levels: the levels of all tensors that differ.
    others: the modules that call other functions in the other run. left: the marks of what the step before wrote.
    units: the calls that are judged by themselves: modules, functions outside of all modules, and gradients.
    inside, parts: name of a module's call -> the functions that its own code calls, and the modules.
    """

    run: CompactRun
    calls: Sequence[CallDiff]
    levels: Levels
    others: frozenset[str] = frozenset()
    left: frozenset[int] = frozenset()
    named: dict[str, CallDiff] = field(init=False)
    _around: dict[str, str | None] = field(init=False)
    units: list[CallDiff] = field(factory=list, init=False)
    inside: dict[str, list[CallDiff]] = field(factory=dict, init=False)
    parts: dict[str, list[CallDiff]] = field(factory=dict, init=False)
    _siblings: dict[str, list[CallDiff]] = field(factory=dict, init=False)
    _keys: dict[str, str] = field(factory=dict, init=False)
    _passes: dict[tuple[str, bool], list[CallDiff]] = field(factory=dict, init=False)
    _ranked: dict[tuple[str, bool], list[float]] = field(factory=dict, init=False)
    _usual: dict[str, bool] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.named = {call.pair.a.name: call for call in self.calls}
        self._around = {name: self._found_around(each.pair.a) for name, each in self.named.items()}
        counted = Counter[tuple[str | None, str, str]]()
        for each in self.calls:
            call, around = each.pair.a, self.around(each.pair.a)
            if call.kind != "api":
                key = _starred(call.name)
                if call.kind == "module":
                    self._passes.setdefault((call.path, call.backward), []).append(each)
            elif call.backward:
                forward = with_direction(call.name, "forward")
                key = self._keys.get(forward, f"{call.path}|{call.what}") + "|back"
            else:
                place = around, call.path, call.what
                key = f"{_starred(call.path)}|{call.what}|{counted[place]}"
                counted[place] += 1
            if self.is_unit(call):
                self.units.append(each)
            else:
                self.inside.setdefault(around or "", []).append(each)
            if call.kind != "api" and around is not None:
                self.parts.setdefault(around, []).append(each)
            self._keys[call.name] = key
            self._siblings.setdefault(key, []).append(each)

    def around(self, call: Call) -> str | None:
        """Return the name of the recorded module call around a call, in the same pass; None where there is none."""
        return self._around[call.name]

    def is_unit(self, call: Call) -> bool:
        """Return whether a call is judged by itself."""
        return call.kind != "api" or self._around[call.name] is None

    def _found_around(self, call: Call) -> str | None:
        if call.backward and call.kind in ("module", "api"):
            above = call.rank.construct.parents.get(with_direction(call.name, "forward"))
            if above is not None and "." in above:
                back, forth = _passes_of(above)
                above = back if back in self.named else forth
        else:
            above = call.parent
        return above if above in self.named else None

    def modules(self, call: Call) -> Iterator[str]:
        """Yield the names of the recorded module calls around a call, from the inside out."""
        above = self.around(call)
        while above is not None:
            yield above
            above = self.around(self.named[above].pair.a)

    def key(self, each: CallDiff) -> str:
        """Return a key that a call shares with the calls at the same place of other layers."""
        return self._keys[each.pair.a.name]

    def siblings(self, each: CallDiff) -> Sequence[CallDiff]:
        """Return a call and its siblings, the calls at the same place of other layers."""
        return self._siblings[self.key(each)]

    @cached_property
    def owners(self) -> Column:
        """Return for each row of the levels the number of its call; -1 where the row does not count."""
        found = np.full(len(self.levels.side), -1)
        for n, each in enumerate(self.calls):
            found[each.rows] = n
        return np.where(self.levels.side < 0, -1, found)

    @cached_property
    def routed(self) -> frozenset[str]:
        """Return the calls of modules that got indexes that differ, or indexes that another such module made."""
        modules = (x for x in self.calls if x.pair.a.kind == "module" and x.changed)
        some = [x for x in modules if x.forms or self.run.form(x.pair.a).has_whole]
        made = {numbers for x in some for numbers in self._indexes(x, "out")}
        other = self.levels.whole & (self.levels.side == SIDES.index("in"))
        found = (x for x in some if other[x.rows].any() or not made.isdisjoint(self._indexes(x, "in")))
        return frozenset(x.pair.a.name for x in found)

    def _indexes(self, each: CallDiff, side: Side) -> Iterator[tuple[Any, ...]]:
        """Yield the statistics of each tensor of whole numbers that a call of the first run got, or made."""
        for value in self.run.read(each.pair.a).side(side):
            if not unit_of(str(value.tensor["dtype"])) and value.tensor.get("Max") != value.tensor.get("Min"):
                yield tuple(map(value.tensor.get, WHOLE))

    def is_routed(self, call: Call, *own: str) -> bool:
        """Return whether a module around a call, or a module of ``own``, is one of `routed`."""
        return any(with_direction(name, "forward") in self.routed for name in (*own, *self.modules(call)))

    @cached_property
    def made(self) -> Set[int]:
        """Return the marks of all results that differ."""
        made = (self.owners >= 0) & (self.levels.side == SIDES.index("out"))
        return set(self.levels.mark[made].tolist())

    def rows(self, each: CallDiff, side: Side) -> Sequence[int]:
        """Return the rows of the levels that are of one side of a call."""
        at = np.flatnonzero(self.levels.side[each.rows] == SIDES.index(side))
        found: list[int] = (at + each.rows.start).tolist()
        return found

    def passes(self, path: str, *, backward: bool) -> Sequence[CallDiff]:
        """Return the calls of a module in one pass."""
        return self._passes.get((path, backward), ())

    def excess_of_others(self, each: CallDiff, *, given: bool) -> float | None:
        """Return how far a call's siblings are beyond the expected level, as a median; None of fewer than two.

        given: whether that is asked of what they got, else of what they made. Ask once all calls were seen: the
            answers are kept.
        """
        key = self.key(each), given
        ranked = self._ranked.get(key)
        if ranked is None:
            excess = (x.given if given else x.made for x in self.siblings(each))
            ranked = self._ranked[key] = sorted(excess)
        if len(ranked) < 3:
            return None
        own = bisect_left(ranked, each.given if given else each.made)
        half, odd = divmod(len(ranked) - 1, 2)
        middle = [ranked[i + (i >= own)] for i in ((half,) if odd else (half - 1, half))]
        return sum(middle) / len(middle)

    def usual(self, around: str | None) -> bool:
        """Return whether most siblings of a module call other functions in the other run: another implementation."""
        if around is None or around not in self.named:
            return False
        key = self.key(self.named[around])
        if key not in self._usual:
            alike = self._siblings[key]
            found = sum(x.pair.a.name in self.others for x in alike)
            self._usual[key] = len(alike) > 1 and 2 * found >= len(alike)
        return self._usual[key]
