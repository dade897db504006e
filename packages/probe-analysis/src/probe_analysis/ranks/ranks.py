"""Compare the ranks of a dump where they should agree, and name the first place where they do not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from attrs import define, field, frozen
from probe_format.errors import FormatError, UsageError

from probe_analysis.calls.compact_run import letting_go
from probe_analysis.calls.engine import Engine, in_process
from probe_analysis.calls.run import Call, Progress, Run, Source, runs_of
from probe_analysis.calls.skipped import Skipped
from probe_analysis.result import Framed

from .disagreement import Disagreement, ranks_text
from .held import all_of, bits_of, lowest, ranks_in
from .replicas import History, Replicas, replicas_of, weights_of
from .side_by_side import Stop
from .step import compare_step
from .summary import RankBlock, StepSummary, summarised


@frozen(eq=False, repr=False)
class Ranks(Framed):
    """Hold what the ranks of a dump should agree on, and whether they do.

    stopped: where the first rank stopped; None where none did before others.
    disagreements: in the order of execution; most that come after the first follow from it.
    checked: reason -> how many tensors were compared for it (`WHY` says what each reason means).
    replicas: which ranks should hold the same weights, and how that was found out.
    steps: the steps, by their labels.
    notes: what else is different, or could not be compared, and need not be a fault.
    skipped: the label of each rank that cannot be read, and why.
    """

    stopped: Stop | None
    disagreements: tuple[Disagreement, ...]
    checked: Mapping[str, int]
    replicas: Replicas
    numbers: tuple[int, ...]
    steps: tuple[str, ...]
    notes: tuple[str, ...]
    skipped: Skipped
    columns = "step call slot reason ranks odd difference"

    @property
    def first(self) -> Disagreement | None:
        """Return the first disagreement in the order of execution; None where the ranks agree."""
        return self.disagreements[0] if self.disagreements else None

    @property
    def state(self) -> str:
        """Return ``agree``, ``disagree``, or ``nothing compared``."""
        if self.first is not None:
            return "disagree"
        return "agree" if any(self.checked.values()) else "nothing compared"

    @property
    def sentence(self) -> str:
        """Return the first disagreement, that there is none, or that nothing was there to compare."""
        if self.first is not None:
            return f"disagree: {self.first.step}: {self.first.sentence}"
        ranks, total = ranks_text(self.numbers), sum(self.checked.values())
        steps = ", ".join(self.steps[:4]) + (", ..." if len(self.steps) > 4 else ".")
        what = f"tensors that they should agree on, in {steps}"
        if not total:
            return f"nothing compared: {ranks} have no numbers of {what}"
        return f"agree: {ranks} agree on all {total} {what}"

    def blamed(self) -> Iterator[tuple[str, str, Call | None]]:
        """Yield the first disagreement, and where a rank stopped."""
        if self.first is not None:
            yield self.first.reason, self.first.sentence, self.first.call
        if self.stopped is not None:
            yield "stopped", self.stopped.sentence, self.stopped.call

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield a row for each disagreement, in the order of execution."""
        for d in self.disagreements:
            yield d.step, d.call.name, d.slot, d.reason, [*map(list, d.parting)], [*d.odd], d.detail


@letting_go()
def ranks(
    dump: Source,
    *,
    step: int | None = None,
    groups: Sequence[Sequence[int]] = (),
    agree: Sequence[str] = (),
    tolerance: float = 0.0,
    engine: Engine = in_process,
    progress: Progress | None = None,
) -> Ranks:
    """Return where ranks disagree that should agree.

    step: only this one; None for all.
    groups: which ranks are replicas, each group a sequence of ranks; found out from the weights when empty.
    agree: patterns of further tensors that all ranks should agree on, as ``Module.norm.*.output.*``.
    tolerance: the relative difference up to which two tensors agree, where not even rounding explains one.
    engine: what reads the ranks, in blocks: `in_process`, `in_processes` or `on_dask`.
    progress: called with (label, blocks or calls compared, how many in all).
    Raises FormatError when the dump cannot be read or has no step with several ranks, UsageError for a rank in
    ``groups`` that the dump does not have or that is there twice, and for a pattern in ``agree`` that matches nothing.
    """
    _refuse(groups, dump, step)
    steps, history, replicas = _Steps(), History(), Replicas((), "")
    found: list[Disagreement] = []
    for label, runs in groupby(runs_of(dump, step=step), key=lambda run: run.label.rpartition("/")[0]):
        listed = dict(steps.listed(runs))
        if not listed:
            continue
        there = bits_of(listed)
        blocks = (RankBlock(label, some, there, agree, tolerance) for some in _blocks([*listed.values()]))
        told = progress and partial(progress, label)
        summary = engine(summarised, blocks, StepSummary.with_, told).settled(all_are_here=True)
        history.stopped = history.stopped or steps.left(label, there)
        if not steps.has_several(summary):
            continue
        replicas = _with_late(replicas, summary, all_of(steps.compared.values()), groups, history)
        steps.compared[label] = summary.members
        numbered = {number: run.rank for number, run in listed.items()}
        found += compare_step(summary, replicas, history, agree, numbered, progress)
    if not steps.compared:
        raise steps.nothing()
    unmatched = [pattern for pattern in agree if pattern not in history.asked]
    if unmatched:
        raise UsageError(
            f"No tensor that several ranks have matches {', '.join(map(repr, unmatched))}. A pattern is of the record "
            "and the place in it, as 'Module.norm.LayerNorm.forward.0.output.0' or 'Module.norm.*.output.*'."
        )
    numbers, labels = ranks_in(all_of(steps.compared.values())), tuple(steps.compared)
    notes, checked = (*steps.notes(), *history.notes), dict(history.checked)
    known = checked, replicas, numbers, labels, notes, steps.skipped
    return Ranks(history.stopped, tuple(found), *known)


def _with_late(
    replicas: Replicas, summary: StepSummary, before: int, groups: Sequence[Sequence[int]], history: History
) -> Replicas:
    """Return the replicas with the ranks of a step that none before has; note those that it shows to be nobody's.

    before: the ranks of the steps before, as bits. groups: as in `ranks`.
    """
    new = summary.members & ~before
    if not new:
        return replicas
    weights = {first: weights_of(cohort) for first, cohort in summary.by_first.items()}
    history.weights = history.weights or any(weights.values())
    found = replicas.with_(replicas_of(summary.by_first, weights, groups), new)
    lone = new & ~all_of(found.groups)
    if before and lone and not groups:
        why = "had no record before, and nothing shows whose replica it is: its weights are not compared."
        history.note("lone", summary.step, f"{ranks_text(ranks_in(lone))} {why}")
    return found


def _refuse(groups: Sequence[Sequence[int]], dump: Source, step: int | None) -> None:
    """Raise UsageError for a rank of the groups that no step has, or that is there twice. dump, step: as in `ranks`."""
    runs = runs_of(dump, step=step) if groups else ()
    there = bits_of(run.rank.number for run in runs if run.rank.number is not None)
    seen = 0
    for rank in (rank for group in groups for rank in group):
        if not there >> rank & 1:
            here = _listed(ranks_in(there))
            raise UsageError(f"The groups name rank {rank}, but the dump has the ranks {here}.")
        if seen >> rank & 1:
            raise UsageError(f"The groups name rank {rank} twice: a rank is a replica in one group.")
        seen |= 1 << rank


#: How many ranks with adjacent numbers are read at once: ranks that get the same mostly have adjacent numbers.
_BLOCK = 64


def _blocks(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    """Yield the ranks in blocks by their numbers alone, so that every engine compares the same ranks at once."""
    for _, some in groupby(runs, key=lambda run: (run.rank.number or 0) // _BLOCK):
        yield [*some]


#: A run that is well looks the same: under torch's Join the ranks with the most batches go on alone.
_BETWEEN = (
    "That is between two steps: no batch was left (data of uneven length), it was killed or failed there, or was no "
    "longer dumped."
)


@define
class _Steps:
    """Go through the steps of a dump one by one, and keep what is not compared.

    compared: the label of each step with several ranks -> these ranks, as bits.
    labels: of the first few ranks of all steps, for messages.
    alone: step -> its only rank.
    skipped: the ranks that cannot be read: the others may tell enough.
    """

    compared: dict[str, int] = field(factory=dict)
    labels: list[str] = field(factory=list)
    alone: dict[str, int] = field(factory=dict)
    skipped: Skipped = field(factory=Skipped)

    def listed(self, runs: Iterable[Run]) -> Iterator[tuple[int, Run]]:
        """Yield the runs of a step that have a rank, each with its number."""
        for run in runs:
            if len(self.labels) < _SHOWN:
                self.labels.append(run.label)
            if run.rank.number is not None:
                yield run.rank.number, run

    def has_several(self, summary: StepSummary) -> bool:
        """Return whether a step has several ranks; note which ranks could not be read, and a rank that is alone."""
        for label, (_, error) in sorted(summary.skipped.items(), key=lambda each: each[1][0]):
            self.skipped.leave(label, error)
        if summary.members.bit_count() == 1:
            self.alone[summary.step] = lowest(summary.members)
        return summary.members.bit_count() > 1

    def left(self, label: str, runs: int) -> Stop | None:
        """Return which ranks of earlier steps did not begin a step that others began; None when all did.

        runs: the ranks of the step, also those that cannot be read, as bits.
        """
        gone = ranks_in(all_of(self.compared.values()) & ~runs)
        why = (
            f"{ranks_text(gone)} stopped before {label}, which {ranks_text(ranks_in(runs))} began. {_BETWEEN}"
        )
        return Stop(label, gone, None, why) if gone else None

    def nothing(self) -> FormatError:
        return self.skipped.first or FormatError(
            f"{_listed(self.labels[:_SHOWN])} is all there is: to compare ranks it takes two of one step. Give the "
            "dump_path, or a step folder, in which each rank has a folder."
        )

    def notes(self) -> Iterator[str]:
        for label, rank in self.alone.items():
            yield f"{label} has rank {rank} alone: not compared."
        numbers = {*self.alone.values(), *ranks_in(all_of(self.compared.values()))}
        torn = {int(label.rpartition("/rank")[2] or 0) for label in self.skipped if "/rank" in label}
        gaps = sorted(set(range(max(numbers))) - numbers - torn)
        if gaps:
            yield f"There is no rank {_listed(gaps)}, though there are higher ones: it was not dumped, or is not here."
        every = all_of(self.compared.values())
        for label, ranks in self.compared.items():
            if lacks := ranks_in(every & ~ranks):
                yield f"{label} lacks {ranks_text(lacks)}, which other steps have."


_SHOWN = 4


def _listed(items: Any) -> str:
    return ", ".join(map(str, items))
