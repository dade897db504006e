"""Compare the ranks of a dump where they should agree, and name the first place where they do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from probe_format import Dump
from probe_format.errors import FormatError, UsageError

from probe_analysis.calls import Run, runs_of
from probe_analysis.frame import frame_of

from .disagreement import Disagreement
from .history import History
from .replicas import Replicas, replicas_of, weights_of
from .step import compare_step

__all__ = ["Ranks", "ranks"]

Progress = Callable[[str, int, int], None]


@frozen(eq=False)
class Ranks:
    """Hold what the ranks of a dump should agree on, and whether they do.

    first: the first disagreement in the order of execution; None where the ranks agree.
    disagreements: all of them, in that order; most that come after the first follow from it.
    checked: reason -> how many tensors were compared for it (`WHY` says what each reason means).
    replicas: which ranks should hold the same weights, and how that was found out.
    numbers: the ranks that were compared.
    steps: the steps, by their labels.
    notes: what else is different, or could not be compared, and need not be a fault.
    """

    first: Disagreement | None
    disagreements: tuple[Disagreement, ...]
    checked: Mapping[str, int]
    replicas: Replicas
    numbers: tuple[int, ...]
    steps: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def state(self) -> str:
        """Return ``agree`` or ``disagree``."""
        return "agree" if self.first is None else "disagree"

    def frame(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row for each disagreement, in the order of execution."""
        columns = ("step", "call", "slot", "reason", "parting", "odd", "detail")
        rows = (
            {"call": each.call.name, **{key: getattr(each, key) for key in columns if key != "call"}}
            for each in self.disagreements
        )
        return frame_of(rows, columns)


def ranks(
    dump: str | Path | Dump,
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
    steps, notes = _steps(dump, step)
    first = next(iter(steps.values()))
    missing = {rank for group in groups for rank in group} - set(first)
    if missing:
        raise UsageError(f"The groups name rank {min(missing)}, but the dump has the ranks {_listed(first)}.")
    weights = {rank: weights_of(run) for rank, run in first.items()}
    replicas = replicas_of(first, weights, groups)
    history = History(any(weights.values()))
    found: list[Disagreement] = []
    for label, runs in steps.items():
        found += compare_step(label, runs, replicas, history, agree, tolerance, progress)
    unmatched = [pattern for pattern in agree if pattern not in history.asked]
    if unmatched:
        raise UsageError(
            f"No tensor that several ranks have matches {', '.join(map(repr, unmatched))}. A pattern is of the record "
            "and the place in it, as 'Module.norm.LayerNorm.forward.0.output.0' or 'Module.norm.*.output.*'."
        )
    notes += [
        f"{label} has the ranks {_listed(runs)} alone."
        for label, runs in steps.items()
        if set(runs) != set(first)
    ]
    return Ranks(
        found[0] if found else None,
        tuple(found),
        dict(history.checked),
        replicas,
        tuple(first),
        tuple(steps),
        (*notes, *history.notes),
    )


def _steps(dump: str | Path | Dump, step: int | None) -> tuple[dict[str, dict[int, Run]], list[str]]:
    """Return the steps with several ranks, label -> rank -> its run; and in words what is not among them."""
    found: dict[str, dict[int, Run]] = {}
    labels, notes = [], []
    error = None
    for run in runs_of(dump, step=step):
        labels.append(run.label)
        if run.rank.number is None:
            continue
        try:
            _ = run.calls
        except FormatError as damaged:  # the others may tell enough
            error = damaged
            notes.append(f"{run.label} is not compared: {damaged}")
            continue
        found.setdefault(run.label.rpartition("/")[0], {})[run.rank.number] = run
    several = {label: dict(sorted(runs.items())) for label, runs in found.items() if len(runs) > 1}
    if not several:
        if error is not None:
            raise error
        raise FormatError(
            f"{_listed(labels[:4])} is all there is: to compare ranks it takes two of one step. Give the dump_path, "
            "or a step folder, in which each rank has a folder."
        )
    notes += [
        f"{label} has rank {next(iter(runs))} alone: not compared."
        for label, runs in found.items()
        if len(runs) == 1
    ]
    numbers = {rank for runs in found.values() for rank in runs}
    gaps = sorted(set(range(max(numbers))) - numbers)
    if gaps:
        notes.append(
            f"There is no rank {_listed(gaps)}, though there are higher ones: it was not dumped, or is not here."
        )
    return several, notes


def _listed(items: Any) -> str:
    return ", ".join(map(str, items))
