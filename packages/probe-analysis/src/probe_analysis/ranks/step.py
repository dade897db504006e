"""Compare the ranks of one step, once all of them are read, and list what should agree among them and does not."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from typing import Any

from attrs import define, evolve, field
from probe_format import Rank
from probe_format.schema import Parts, Value

from probe_analysis.calls.run import Call, Progress

from .cohort import Cohort, kind_of
from .disagreement import Disagreement, Reason, ranks_text, unreduced
from .expected import Expected, is_divided, reason_of
from .given import Given, JointRow, inputs_of
from .groups import is_collective
from .held import Held, Kind, Piles, all_of, lowest, ranks_in, within
from .judge import More, absence, judged
from .marks import sums_in
from .replicas import History, Replicas, Shares, note_inputs, shares_of
from .side_by_side import Joint, Missing, collective, rows_of, stop_of
from .summary import StepSummary, order_of


def compare_step(
    summary: StepSummary,
    replicas: Replicas,
    history: History,
    asked: Sequence[str],
    ranks: Mapping[int, Rank],
    progress: Progress | None,
) -> list[Disagreement]:
    """Return where the ranks of a step disagree, in the order of execution.

    summary: of all ranks of the step. asked: patterns of further tensors that all ranks should agree on.
    ranks: number -> rank, to name calls by.
    """
    label, cohorts = summary.step, summary.by_first
    runs = {first: cohort.lead for first, cohort in cohorts.items()}
    members = {first: cohort.members for first, cohort in cohorts.items()}
    rows, alone = rows_of(runs, members)
    cut = all_of(members[first] for first, run in runs.items() if run.was_cut)
    if cut:
        why = "did not end the step (killed, failed, or still running): calls after that are not compared."
        history.note("cut", label, f"{ranks_text(ranks_in(cut))} {why}".capitalize())
        history.stopped = history.stopped or stop_of(label, rows, runs, members)
    if summary.lost:
        lost = "; ".join(f"rank {rank}, {what}" for rank, what in summary.lost.items())
        history.note("lost", label, f"{lost}. What is lost is not compared.")
    if summary.more:
        history.note("more", label, f"{summary.more} more disagreements are not listed.")
    history.checked.update(summary.checked)
    at = _RanksOfStep(summary, cohorts, replicas, history, asked, ranks)
    shares = shares_of(cohorts, replicas, history, label)
    found = [*at.missing(alone, shares), *summary.found]
    given = Given(replicas.groups, shares.apart, history.given, inputs_of(next(iter(runs.values()))))
    for n, row in enumerate(rows):
        if sum(members[first].bit_count() for first in row) > 1:
            found += at.row(row, shares.same, given)
        if progress is not None and n % 256 == 255:
            progress(label, n + 1, len(rows))
    found += filter(None, (at.compare(call, expected) for call, expected in given.settled()))
    if given.unsure:
        call, expected = given.unsure[0]
        what = f"whole numbers that stay the same differ between replicas ({len(given.unsure)}), first {call.name}."
        more = "Each rank's own place, or a fault that no majority shows: not blamed."
        history.note("numbers", label, f"{what}{expected.slot}. {more}")
    given.before, history.given = None, given
    if history.weights and replicas.groups[:1] == (summary.members,):
        note_inputs(label, rows, cohorts, history)
    return sorted(found, key=order_of)


@define(eq=False)
class _RanksOfStep:
    """Compare one step. cohorts: by their first ranks, the lowest first. The rest is as in `compare_step`."""

    summary: StepSummary
    cohorts: Mapping[int, Cohort]
    replicas: Replicas
    history: History
    asked: Sequence[str]
    ranks: Mapping[int, Rank]
    _around: dict[str, frozenset[str]] = field(factory=dict, init=False)
    _known: dict[Any, Sequence[tuple[int, int, bool]]] = field(factory=dict, init=False)

    def row(self, joint: Joint, updates: Sequence[int], given: Given) -> Iterator[Disagreement]:
        call = next(iter(joint.values()))
        if collective(call):
            return  # paired by their groups instead
        row = self._row(call, joint)
        taken: set[int] = set()
        every = given.look(call, row), self._asked(row), self._of_replicas(row, updates, taken)
        for expected in chain(*every):
            ranks = all_of(expected.held or {})
            found = self.compare(call, expected, partial(self._unreduced, row, expected.slot))
            if found is not None:
                taken.add(ranks)
                yield found

    def _row(self, call: Call, joint: Joint) -> JointRow:
        cohorts = {first: self.cohorts[first] for first in joint}
        parts = {first: cohorts[first].lead.read(each) for first, each in joint.items()}
        members = {first: each.members for first, each in cohorts.items()}
        forms = {cohorts[first].lead.form(each) for first, each in joint.items()}
        odd = any(joint[first].order in each.odd for first, each in cohorts.items())

        def piles(first: int, slot: str, kind: Kind) -> Piles:
            return cohorts[first].piles((joint[first].order, slot, kind))

        def kind(value: Value) -> Kind | None:
            return kind_of(call, value.slot, value.side, value.tensor, self.asked)

        return JointRow(call, parts, members, len(forms) == 1 and not odd, piles, kind)

    def _asked(self, row: JointRow) -> Iterator[Expected]:
        for slot, value in _values(row.parts).items() if self.asked else ():
            matched = [p for p in self.asked if fnmatchcase(f"{row.call.name}.{slot}", p)]
            held = row.tensors(value) if matched else {}
            if matched and (held is None or all_of(held).bit_count() > 1):
                self.history.asked.update(matched)
                yield Expected("asked", slot, held)

    def _of_replicas(
        self, row: JointRow, updates: Sequence[int], taken: Collection[int]
    ) -> Iterator[Expected]:
        """Yield the tensors of a call that some group of replicas may not hold alike.

        taken: sets of ranks for which a disagreement on this call was found already.
        """
        ranks = all_of(row.members.values())
        for slot, value in _values(row.parts).items():
            reason = reason_of(row.call, value, updates=bool(updates), weights=self.history.weights)
            if reason is None or is_divided(value.tensor):
                continue
            held = row.tensors(value)
            groups = updates if reason == "update" else self.replicas.of(row.call)
            # What the call returns differs because what it got does.
            follows = taken if reason == "update" and slot.startswith("output") else ()
            expected = Expected(reason, slot, held)
            for number, group, same in self._divided(tuple(groups), ranks, held):
                if not same:
                    yield from self._of_group(row.call, expected, group, ranks, follows)
                elif group not in follows:
                    self._agree(reason, (row.call.name, slot, number), group)

    def _divided(
        self, groups: tuple[int, ...], ranks: int, held: Held | None
    ) -> Sequence[tuple[int, int, bool]]:
        """Return of each group with two or more of ``ranks`` its number, these, and whether they hold the same."""
        key = groups, ranks, None if held is None else frozenset(held)
        if key not in self._known:
            some = ((number, group & ranks) for number, group in enumerate(groups))
            same = (held or {}).keys()
            self._known[key] = [
                (number, each, each in same or any(bits & each == each for bits in same))
                for number, each in some
                if each & each - 1
            ]
        return self._known[key]

    def _of_group(
        self, call: Call, expected: Expected, group: int, ranks: int, follows: Collection[int]
    ) -> Iterator[Expected]:
        """Yield the tensor of ``expected`` as a group of replicas holds it, where a difference in it is to be judged.

        expected: the tensor on all ranks that make the call.
        follows: sets of ranks whose difference follows from one that was found.
        """
        reason, slot, held = expected.reason, expected.slot, expected.held
        some = None if held is None else within(held, group)
        if some is None and ranks & ~group:
            what = f"{call.name}.{slot} has too many different ones to compare it in groups of replicas."
            self.history.note("many", self.summary.step, what)
        elif all_of(some or {}) not in follows and (
            some is None
            or (
                all_of(some).bit_count() > 1
                and not (reason == "update" and self.replicas.differ_by_expert(some))
            )
        ):
            yield Expected(reason, slot, some)

    def missing(self, alone: Sequence[Missing], shares: Shares) -> Iterator[Disagreement]:
        """Yield the calls of modules, and the gradients, that only some of the replicas make; note other calls."""
        others: list[Missing] = []
        for each in alone:
            call = each.call
            if call.kind == "api":  # its effect shows in the numbers of later calls
                if not is_collective(call):
                    others.append(each)
                continue
            for group in shares.asking(call, self.replicas.groups):
                present, absent = each.present & group, each.absent & group
                if absent and present and call.kind != "debug":
                    made, waits = self._made(call, present), call.name in self._around_collectives(present)
                    yield absence(self.summary.step, Missing(call, group, present, absent), made, waits=waits)
                    break
        if others:
            first = others[0]
            text = f"{len(others)} function calls are made by some ranks alone, as {first.call.name} by "
            self.history.note("alone", self.summary.step, f"{text}{ranks_text(ranks_in(first.present))}.")

    def _around_collectives(self, ranks: int) -> frozenset[str]:
        """Return the modules inside of which the first of some ranks makes collective calls."""
        lead = next(each.lead for each in self.cohorts.values() if each.members >> lowest(ranks) & 1)
        if lead.label not in self._around:
            names = (name for call in lead.calls if is_collective(call) for name in call.modules)
            self._around[lead.label] = frozenset(names)
        return self._around[lead.label]

    def compare(self, call: Call, expected: Expected, more: More | None = None) -> Disagreement | None:
        """Return where ranks disagree on a tensor or an argument that they should agree on; None where they agree."""
        ranks = all_of(expected.held or {})
        reason, groups = expected.reason, self.replicas.of(call)
        number = next((number for number, group in enumerate(groups) if group & ranks), -1)
        key = call.name, expected.slot, number
        further: Mapping[str, More | None]
        further = {"update": more, "weight": lambda _: (0, self._since(key, ranks))}
        if reason not in ("form", "argument") and len(sums_in(expected.held or {})) > 1:
            self._note_sums()
        answer = judged(self.summary.step, call, expected, self.summary.tolerance, further.get(reason))
        # Where no module's weights are recorded, only the function says what is a weight: it must have agreed before.
        is_known = reason != "weight" or self.history.weights or key in self.history.agreed
        if answer is False or (answer is not True and not is_known):
            return None
        if answer is True:
            self._agree(reason, key, ranks)
            return None
        self.history.checked[reason] += 1
        return evolve(answer, call=self._made(call, ranks) if ranks else call)

    def _note_sums(self) -> None:
        """Note, once, that a difference that checksums alone show may not be seen."""
        if "sums" not in self.history.noted:
            why = "only some ranks have checksums, or they are of several kinds (summary_mode)"
            text = f"{why}: between those the statistics alone are compared."
            self.history.note("sums", self.summary.step, text)

    def _agree(self, reason: Reason, key: tuple[str, str, int], ranks: int) -> None:
        """Keep that some ranks agree. key: of a weight, as in `History`."""
        self.history.checked[reason] += 1
        if reason == "weight":
            self.history.agreed[key] = self.summary.step, ranks

    def _unreduced(self, row: JointRow, slot: str, held: Held) -> tuple[int, str]:
        own: dict[str, int] = {}
        for first in row.parts:
            piles = row.piles(first, slot, "own")
            for name, (bits, _) in (piles or {}).items():
                own[str(name)] = own.get(str(name), 0) | bits
        some = min(held, key=lowest)
        lead = next(self.cohorts[first].lead for first, bits in row.members.items() if bits & some)
        same = [
            f"{call.name}.{x[0]}"
            for call in lead.calls
            if call.kind == "parameters_grad"
            for x in lead.form(call).tensors
            if x[2]["shape"] == held[some]["shape"]
        ]
        return unreduced(held, own, same)

    def _made(self, call: Call, ranks: int) -> Call:
        """Return a call as that of the first of these ranks."""
        return evolve(call, rank=self.ranks[lowest(ranks)])

    def _since(self, key: tuple[str, str, int], ranks: int) -> str:
        step, before = self.history.agreed.get(key, ("", 0))
        if not before:
            return "They differ from the first record on: look at how each rank initialises, loads or broadcasts them"
        if unknown := ranks & ~before:
            had, lacks = ranks_text(ranks_in(before)), ranks_text(ranks_in(unknown))
            return f"In {step} {had} agreed, and {lacks} had no record of it"
        return (
            f"In {step} they agreed: look at the reduction of the gradients, the optimizer's step, and whatever "
            "else writes weights between"
        )


def _values(parts: Mapping[int, Parts]) -> dict[str, Value]:
    """Return slot -> value, for each slot in the records of a row, from the first rank that has it."""
    return {value.slot: value for each in reversed(list(parts.values())) for value in each.values}
