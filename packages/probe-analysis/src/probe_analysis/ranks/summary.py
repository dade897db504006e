"""Read some ranks of a step, and summarise what tells whether all ranks agree; two such summaries unite to one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from attrs import evolve, field, frozen
from probe_format.errors import FormatError

from probe_analysis.calls.compact_run import CompactRun, Shared, Tensors
from probe_analysis.calls.run import Call, Run

from .cohort import Cohort
from .computed import computed
from .disagreement import Disagreement
from .expected import Expected
from .groups import Group, Made, made_by, settled
from .held import all_of, bits_of, joined, lowest
from .judge import absence, judged
from .meshes import Meshes, placed_by, places_on, settled_mesh
from .sheet import Sheet
from .side_by_side import Missing

#: How many disagreements, and lost ranks, are kept of all that were found while ranks were read; the first ones.
_MOST, _MOST_LOST = 1000, 16


@frozen(eq=False)
class RankBlock:
    """Name some ranks of a step, with adjacent numbers, that are read and compared at once.

    there: all ranks of the step, as bits. asked, tolerance: ``agree`` and ``tolerance`` of the function `ranks`.
    """

    step: str
    runs: Sequence[Run]
    there: int
    asked: Sequence[str]
    tolerance: float


@frozen(eq=False)
class StepSummary:
    """Hold what some ranks of a step have recorded where they should agree with others.

    there: all ranks of the step, as bits. members: the ranks that were read, as bits.
    skipped: label of a rank that cannot be read -> its number, and why.
    cohorts: key -> ranks that make the same calls.
    groups, meshes: collective calls and DTensors of groups of ranks that are not all read yet.
    found, checked: the disagreements so far, and reason -> how many tensors were compared so far.
    more: how many disagreements are not kept.
    lost: rank -> what its records lack.
    """

    step: str
    there: int
    tolerance: float
    members: int = 0
    skipped: Mapping[str, tuple[int, FormatError]] = field(factory=dict)
    cohorts: Mapping[bytes, Cohort] = field(factory=dict)
    groups: Mapping[Group, Made] = field(factory=dict)
    meshes: Meshes = field(factory=dict)
    found: tuple[Disagreement, ...] = ()
    checked: Mapping[str, int] = field(factory=Counter)
    more: int = 0
    lost: Mapping[int, str] = field(factory=dict)

    @property
    def by_first(self) -> dict[int, Cohort]:
        """Return the cohorts by their first ranks, the lowest first."""
        found = {lowest(each.members): each for each in self.cohorts.values()}
        return dict(sorted(found.items()))

    def with_(self, other: StepSummary) -> StepSummary:
        """Return the two summaries as one. The order and the pairs in which summaries are united do not matter."""
        cohorts = joined({}, {"": self.cohorts}, {"": other.cohorts})[""]
        return StepSummary(
            self.step,
            self.there,
            self.tolerance,
            self.members | other.members,
            {**self.skipped, **other.skipped},
            cohorts,
            joined({}, self.groups, other.groups),
            joined({}, self.meshes, other.meshes),
            self.found + other.found,
            Counter(self.checked) + Counter(other.checked),
            self.more + other.more,
            dict(sorted({**self.lost, **other.lost}.items())[:_MOST_LOST]),
        ).settled()

    def settled(self, *, all_are_here: bool = False) -> StepSummary:
        """Compare the groups and meshes whose ranks are all read by now; return the summary with what was found.

        all_are_here: whether no more ranks will come.
        """
        here = -1 if all_are_here else self.members | all_of(1 << rank for rank, _ in self.skipped.values())
        groups = [g for g in self.groups if not (self.there if g is None else _bits(g) & self.there) & ~here]
        meshes = [m for m in self.meshes if not _bits(tuple(places_on(m))) & self.there & ~here]
        if not groups and not meshes:
            return self
        found, checked = [*self.found], Counter(self.checked)
        expected: list[tuple[Call, Expected]] = []
        for group in groups:
            for each in settled(group, self.groups[group], self.members):
                if isinstance(each, tuple):
                    expected.append(each)
                elif absent := each.absent & ~self._was_cut_before(each):
                    found.append(absence(self.step, evolve(each, absent=absent), each.call))
        expected += [pair for mesh in meshes for pair in settled_mesh(self.meshes[mesh])]
        _judge(self.step, expected, self.tolerance, found, checked)
        found.sort(key=order_of)
        return evolve(
            self,
            groups={group: made for group, made in self.groups.items() if group not in groups},
            meshes={mesh: placed for mesh, placed in self.meshes.items() if mesh not in meshes},
            found=tuple(found[:_MOST]),
            checked=checked,
            more=self.more + max(0, len(found) - _MOST),
        )

    def _was_cut_before(self, each: Missing) -> int:
        """Return the ranks that did not get to a call that others make, because they were cut."""
        makers = (c.lead for c in self.cohorts.values() if c.members >> lowest(each.present) & 1)
        there = next(makers).by_name
        cut = 0
        for cohort in self.cohorts.values():
            run = cohort.lead
            if run.was_cut and cohort.members & each.absent:
                ended = (c for c in reversed(run.calls) if c.kind == "api" or not run.ended_inside(c))
                met = next((there[c.name].order for c in ended if c.name in there), -1)
                cut |= cohort.members if met < each.call.order else 0
        return cut


def order_of(found: Disagreement) -> tuple[int, bool, bool, int, int]:
    """Return the key to sort disagreements by: the order of execution.

    Of one call, that ranks lack it comes first; of these, the disagreement among most ranks.
    """
    ranks = [rank for group in found.parting for rank in group]
    made = found.call.rank.number in found.odd
    return found.call.order, found.reason != "call", made, -len(ranks), min(ranks, default=0)


@lru_cache(maxsize=256)  # of many ranks they are large
def _bits(ranks: tuple[int, ...]) -> int:
    return bits_of(ranks)


def _judge(
    step: str,
    expected: Sequence[tuple[Call, Expected]],
    tolerance: float,
    found: list[Disagreement],
    checked: Counter[str],
) -> None:
    for call, each in expected:
        answer = judged(step, call, each, tolerance)
        checked[each.reason] += answer is not False
        if isinstance(answer, Disagreement):
            found.append(answer)


def summarised(block: RankBlock) -> StepSummary:
    """Read the ranks of a block, and return their summary."""
    skipped = dict[str, tuple[int, FormatError]]()
    shared = Shared.kept()
    runs: dict[bytes, list[CompactRun]] = {}
    lost, members = dict[int, str](), 0
    for run in sorted(block.runs, key=lambda each: each.rank.number or 0):
        rank = run.rank.number or 0
        # What is read, and what a path caches, is kept by this copy, and goes with it.
        opened = Run(run.label, evolve(run.rank, path=Path(run.rank.path)))
        try:
            compact = CompactRun.of(opened, shared, among=True)
        except FormatError as error:
            skipped[run.label] = rank, error
            continue
        runs.setdefault(_key(compact), []).append(compact)
        lost |= {rank: str(opened.rank.lost)} if opened.rank.lost else {}
        members |= 1 << rank
    sheets = [Sheet(each) for each in runs.values()]
    groups: dict[Group, Made] = joined({}, *map(made_by, sheets))
    meshes: Meshes = joined({}, *map(placed_by, sheets))
    found, checked = list[Disagreement](), Counter[str]()
    _judge(block.step, [*computed(sheets)], block.tolerance, found, checked)
    cohorts = {key: Cohort.of(sheet, tuple(block.asked)) for key, sheet in zip(runs, sheets, strict=True)}
    known = skipped, cohorts, groups, meshes, tuple(found), checked, 0, lost
    return StepSummary(block.step, block.there, block.tolerance, members, *known).settled()


def _key(run: CompactRun) -> bytes:
    """Return a key that ranks of one cohort share: of their calls, shapes of weights, and where they were cut."""
    inside = [call.order for call in run.calls if run.ended_inside(call)] if run.was_cut else ()
    tensors = tuple(run.forms[order].tensors for order in _modules(run.calls))
    return _digest(run.calls, tensors, f"{run.was_cut} {inside}")


@lru_cache(maxsize=4)
def _digest(calls: tuple[Call, ...], tensors: tuple[Tensors, ...], end: str) -> bytes:
    shapes = ([(x[0], x[2]["shape"]) for x in each if x[1] == "parameter"] for each in tensors)
    told = *(f"{call.name} {call.parent}" for call in calls), *map(str, shapes), end
    return blake2b("\0".join(told).encode("utf-8", "backslashreplace")).digest()


@lru_cache(maxsize=4)
def _modules(calls: tuple[Call, ...]) -> list[int]:
    return [call.order for call in calls if call.kind == "module" and not call.backward]
