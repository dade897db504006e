"""Compare the ranks of a dump where they should agree, and name the first place where they do not."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from attrs import define, field, frozen
from probe_format.errors import FormatError, UsageError

from probe_analysis.calls.run import Progress, Run, Source, runs_of
from probe_analysis.frame import Framed, frame_of

from .compact_run import CompactRun, Shared
from .disagreement import Disagreement, ranks_text
from .replicas import History, Replicas, replicas_of, weights_of
from .rows import Stop
from .step import compare_step


@frozen(eq=False, repr=False)
class Ranks(Framed):
    """Hold what the ranks of a dump should agree on, and whether they do.

    stopped: where the first rank stopped; None where none did before others.
    first: the first disagreement in the order of execution; None where the ranks agree.
    disagreements: all of them, in that order; most that come after the first follow from it.
    checked: reason -> how many tensors were compared for it (`WHY` says what each reason means).
    replicas: which ranks should hold the same weights, and how that was found out.
    steps: the steps, by their labels.
    notes: what else is different, or could not be compared, and need not be a fault.
    """

    stopped: Stop | None
    first: Disagreement | None
    disagreements: tuple[Disagreement, ...]
    checked: Mapping[str, int]
    replicas: Replicas
    numbers: tuple[int, ...]
    steps: tuple[str, ...]
    notes: tuple[str, ...]

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

    def frame(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row for each disagreement, in the order of execution."""
        found = self.disagreements
        rows = ((d.step, d.call.name, d.slot, d.reason, d.parting, d.odd, d.detail) for d in found)
        return frame_of("step call slot reason parting odd detail", rows)


def ranks(
    dump: Source,
    *,
    step: int | None = None,
    groups: Sequence[Sequence[int]] = (),
    agree: Sequence[str] = (),
    tolerance: float = 0.0,
    progress: Progress | None = None,
) -> Ranks:
    """Return where ranks disagree that should agree.

    step: only this one; None for all.
    groups: which ranks are replicas, each group a sequence of ranks; found out from the weights when empty.
    agree: patterns of further tensors that all ranks should agree on, as ``Module.norm.*.output.*``.
    tolerance: the relative difference up to which two tensors agree, where not even rounding explains one.
    progress: called with (label, calls compared, calls in all).
    Raises FormatError when the dump cannot be read or has no step with several ranks, UsageError for a rank in
    ``groups`` that the dump does not have, and for a pattern in ``agree`` that matches nothing.
    """
    steps = _Steps()
    found: list[Disagreement] = []
    for label, runs in steps.of_several(runs_of(dump, step=step)):
        if not steps.compared:
            for rank in (rank for group in groups for rank in group if rank not in runs):
                raise UsageError(f"The groups name rank {rank}, but the dump has the ranks {_listed(runs)}.")
            weights = {rank: weights_of(run) for rank, run in runs.items()}
            replicas, history = replicas_of(runs, weights, groups), History(any(weights.values()))
        history.stopped = history.stopped or steps.left(label, runs)
        steps.compared[label] = tuple(runs)
        found += compare_step(label, runs, replicas, history, agree, tolerance, progress)
    if not steps.compared:
        raise steps.nothing()
    unmatched = [pattern for pattern in agree if pattern not in history.asked]
    if unmatched:
        raise UsageError(
            f"No tensor that several ranks have matches {', '.join(map(repr, unmatched))}. A pattern is of the record "
            "and the place in it, as 'Module.norm.LayerNorm.forward.0.output.0' or 'Module.norm.*.output.*'."
        )
    numbers, labels = next(iter(steps.compared.values())), tuple(steps.compared)
    notes, checked = (*steps.notes(), *history.notes), dict(history.checked)
    first = found[0] if found else None
    return Ranks(history.stopped, first, tuple(found), checked, replicas, numbers, labels, notes)


@define
class _Steps:
    """Go through the steps of a dump one by one, and keep what is not compared.

    compared: the steps of several ranks, label -> their numbers.
    labels: of all ranks of all steps.
    alone: step -> its only rank.
    damaged: the ranks that cannot be read, label -> why.
    """

    compared: dict[str, tuple[int, ...]] = field(factory=dict)
    labels: list[str] = field(factory=list)
    alone: dict[str, int] = field(factory=dict)
    damaged: dict[str, FormatError] = field(factory=dict)

    def of_several(self, runs: Iterable[Run]) -> Iterator[tuple[str, dict[int, CompactRun]]]:
        """Yield each step that has several ranks, and its runs by the numbers of their ranks."""
        for label, ranks in groupby(runs, key=lambda run: run.label.rpartition("/")[0]):
            found = dict(sorted(self._readable(ranks)))
            if len(found) > 1:
                yield label, found
            elif found:
                (self.alone[label],) = found

    def _readable(self, runs: Iterable[Run]) -> Iterator[tuple[int, CompactRun]]:
        shared = Shared()
        for run in runs:
            self.labels.append(run.label)
            if run.rank.number is None:
                continue
            try:
                yield run.rank.number, CompactRun.of(run, shared)
            except FormatError as damaged:  # the others may tell enough
                self.damaged[run.label] = damaged

    def left(self, label: str, runs: Collection[int]) -> Stop | None:
        """Return which ranks of the steps before are not in one that others began; None when they are all there."""
        before = sorted({rank for ranks in self.compared.values() for rank in ranks} - set(runs))
        gone = tuple(rank for rank in before if f"{label}/rank{rank}" not in self.damaged)
        why = f"{ranks_text(gone)} stopped before {label}, which {ranks_text(tuple(runs))} began."
        return Stop(label, gone, None, why) if gone else None

    def nothing(self) -> FormatError:
        for error in self.damaged.values():
            return error
        return FormatError(
            f"{_listed(self.labels[:4])} is all there is: to compare ranks it takes two of one step. Give the "
            "dump_path, or a step folder, in which each rank has a folder."
        )

    def notes(self) -> Iterator[str]:
        for label, error in self.damaged.items():
            yield f"{label} is not compared: {error}"
        for label, rank in self.alone.items():
            yield f"{label} has rank {rank} alone: not compared."
        numbers = {*self.alone.values(), *(rank for ranks in self.compared.values() for rank in ranks)}
        gaps = sorted(set(range(max(numbers))) - numbers)
        if gaps:
            yield f"There is no rank {_listed(gaps)}, though there are higher ones: it was not dumped, or is not here."
        first = next(iter(self.compared.values()))
        for label, ranks in self.compared.items():
            if ranks != first:
                yield f"{label} has the ranks {_listed(ranks)} alone."


def _listed(items: Any) -> str:
    return ", ".join(map(str, items))
