"""Follow one quantity, such as gradients, over a dump's steps, layers and ranks; sort its tensors by their change."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, Literal

import numpy as np
from attrs import evolve, field, frozen
from probe_format import Dump
from probe_format.errors import FormatError
from probe_format.watch import WatchFile, watch_files

from probe_analysis.calls.engine import Engine, in_process
from probe_analysis.calls.run import Progress, Run, Source, runs_of
from probe_analysis.calls.skipped import Skipped
from probe_analysis.result import Framed

from .sentence import sentence_of
from .series import Point, Series, begins_with_zero, of_each, span, without_first_zeros
from .sources import Found, Quantity, Statistic, statistic_of, tensors_of
from .watched import watched_values

_LEVELS = {
    "gradients": "the gradients of parameters are recorded at the levels L0 and mix, after a backward pass",
    "weights": "parameters are recorded at the levels L0 and mix",
    "updates": "updates are the difference between the parameters of two steps: dump two, at level L0 or mix",
    "moments": "only task watch records them, with moments: true",
    "activations": "every level records them, of what the model calls",
}


@frozen(eq=False, repr=False)
class Trend(Framed):
    """Hold one quantity over steps, layers and ranks.

    quantity, statistic: what was followed.
    series: one for each tensor, those that changed most first (`rule` says by what).
    steps: those of the dump. ranks: one of each process, None where it has no number.
    rule: how the change is ranked, in words.
    notes: what the numbers do not say.
    skipped: the label of each run that cannot be read, and why.
    """

    quantity: Quantity
    statistic: Statistic
    series: tuple[Series, ...]
    steps: tuple[int, ...]
    ranks: tuple[int | None, ...]
    rule: str
    notes: tuple[str, ...]
    skipped: Mapping[str, str] = field(factory=dict)
    columns = "layer what step rank value over_steps over_ranks folder"

    @property
    def state(self) -> str:
        if self.series[0].broken is not None:
            return "not finite"
        return "changes" if self.ranked(self.series[0]) > 1.0 or self.begun else "constant"

    @property
    def begun(self) -> tuple[Series, ...]:
        """Return the tensors that are zero at first, which does not count as their change, and then are not."""
        return tuple(s for s in self.series if any(begins_with_zero(some) for some in of_each(s.points)))

    @property
    def sentence(self) -> str:
        """Return in words what changes most."""
        return sentence_of(self)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield a row for each value, those of the tensor that changed most first."""
        for s in self.series:
            for p in s.points:
                yield s.layer, s.what, p.step, p.rank, p.value, s.change, s.apart, p.folder

    def whose(self, point: Point) -> str:
        """Return in words whose a value is; nothing where there is one process, which has no number."""
        if point.rank is not None:
            return f"rank {point.rank}"
        return f"folder {point.folder}" if len(self.ranks) > 1 else ""

    def ranked(self, series: Series) -> float:
        """Return the number that a series is ranked by."""
        if len(self.steps) > 1:
            return series.change
        if len(self.ranks) > 1:
            return series.apart
        value = series.of_step(self.steps[0])
        firsts = (each.points[0].value for each in self.series)
        sizes = [abs(v) for v in firsts if v is not None and math.isfinite(v) and v]
        return 1.0 if value is None else span([abs(value), median(sizes) if sizes else 0.0])


def trend(
    dump: Source,
    quantity: Quantity = "gradients",
    *,
    statistic: Statistic = "Norm",
    step: int | None = None,
    rank: int | None = None,
    engine: Engine = in_process,
    progress: Progress | None = None,
) -> Trend:
    """Return how a quantity runs over the steps, layers and ranks of a dump.

    Where task `watch` has left files, norms (and ``rms``) come from these: gradients as the optimizer got them, and
    updates as they were.

    quantity: ``gradients`` (of parameters, before any reduction over ranks), ``weights``, ``updates`` (of weights, from
        one step to the next), ``moments`` (of task `watch`) or ``activations``.
    statistic: which number of each tensor: Norm, Max, Min, Mean, ``magnitude`` (the largest absolute value) or ``rms``.
    step, rank: only these; None for all.
    engine: what reads the ranks: `in_process`, `in_processes` or `on_dask`.
    progress: called with (label, parts read, parts in all): runs; of updates, ranks.
    A rank that cannot be read is skipped, and noted. Raises FormatError when none can be read, or there is nothing of
    the quantity.
    """
    if statistic in ("Norm", "rms") and not isinstance(dump, Dump) and (files := watch_files(dump)):
        return watched_trend(files, quantity, statistic, step=step, rank=rank)
    runs = list(runs_of(dump, step=step, rank=rank))
    parts: dict[Any, list[tuple[int, Run]]] = {}
    for n, run in enumerate(runs):  # updates take the step before too: all steps of a process go together
        parts.setdefault(run.folder if quantity == "updates" else n, []).append((n, run))
    notes: list[str] = []
    skipped = Skipped()
    values: dict[tuple[str, str], list[Point]] = {}
    bounds: dict[str, str] = {}
    work = partial(_read, quantity, statistic)
    for points, lost, lower in skipped.read(work, [*parts.values()], engine, progress):
        for key, point in points:
            values.setdefault(key, []).append(point)
        notes += lost
        bounds = {**lower, **bounds}
    skipped.unless(values)
    if not values:
        why = "; ".join([_LEVELS[quantity], *notes, *skipped.values()])
        raise FormatError(f"There is nothing of {quantity} in {runs[0].label}: {why}.")
    if all(point.value is None for points in values.values() for point in points):
        how = "dump with summary_mode statistics, or md5"
        raise FormatError(f"The tensors of {quantity} in {runs[0].label} have no statistics: {how}.")
    counts = "so an update counts as what the statistic of its weight changed by: at least that."
    notes += [f"{why}{first}, {counts}" for why, first in bounds.items()]
    ranks = {run.rank.path.name: run.rank.number for run in runs if run.label not in skipped}
    return evolve(_ranked(quantity, statistic, values, ranks.values(), notes), skipped=skipped)


def watched_trend(
    files: Sequence[WatchFile],
    quantity: Quantity,
    statistic: Literal["Norm", "rms"] = "Norm",
    *,
    step: int | None = None,
    rank: int | None = None,
) -> Trend:
    """Return how a quantity runs over what task `watch` has left. Arguments and errors are those of `trend`."""
    watched = watched_values(files, quantity, rms=statistic == "rms", step=step, rank=rank)
    return _ranked(quantity, statistic, *watched)


def _ranked(
    quantity: Quantity,
    statistic: Statistic,
    values: Mapping[tuple[str, str], list[Point]],
    ranks: Collection[int | None],
    notes: Iterable[str],
) -> Trend:
    series = [_series(key, points, place) for place, (key, points) in enumerate(values.items())]
    steps = tuple(sorted({point.step for each in series for point in each.points}))
    of, rule = tuple(ranks), _rule(statistic, len(steps), len(ranks))
    whole = Trend(quantity, statistic, tuple(series), steps, of, rule, tuple(notes))
    first = sorted(series, key=lambda each: (-whole.ranked(each), each.broken is None, each.place))
    return evolve(whole, series=tuple(first))


def _series(key: tuple[str, str], points: list[Point], place: int) -> Series:
    points = sorted(points, key=lambda point: (point.step, -1 if point.rank is None else point.rank))
    over_steps = (span(without_first_zeros(p.value for p in some)) for some in of_each(points))
    over_ranks = (span(p.value for p in points if p.step == step) for step in {p.step for p in points})
    return Series(*key, tuple(points), place, max(over_steps), max(over_ranks))


def _rule(statistic: Statistic, steps: int, ranks: int) -> str:
    largest = "the largest magnitude"
    if statistic in ("Max", "Min", "Mean"):
        largest += ", or the distance where signs differ,"
    if steps > 1:
        return f"ranked by {largest} through the smallest over the steps of one rank"
    if ranks > 1:
        return f"one step: ranked by {largest} through the smallest over the ranks"
    what = "ranked by how many times a magnitude is larger or smaller than the median layer's"
    return f"one step and rank: {what}"


def _read(
    quantity: Quantity, statistic: Statistic, run: Run, before: dict[Any, tuple[int, Found]]
) -> tuple[Sequence[tuple[tuple[str, str], Point]], Sequence[str], Mapping[str, str]]:
    """Return the values of a quantity in a run, in its order, and what is lost.

    Return also why some values are lower bounds -> what the first error says, in brackets; empty without one.
    before: (layer, tensor) -> its last step, which this fills in.
    """
    at, of, folder = run.rank.step or 0, run.rank.number, run.folder
    bounds: dict[str, str] = {}
    points = list[tuple[tuple[str, str], Point]]()
    for found in [*tensors_of(run, quantity)]:  # all at first: of a run that cannot be read, nothing is kept
        key = found.layer, found.what
        if quantity != "updates":
            points.append((key, Point(at, of, statistic_of(found.value.tensor, statistic), folder)))
            continue
        last, before[key] = before.get(key), (at, found)
        if last is not None:
            value, why, error = _update(last[1], found, statistic)
            if why and value is not None:
                bounds.setdefault(why, error)
            points.append((key, Point(last[0], of, value, folder)))
    return points, [f"{run.label}: {run.rank.lost}"] if run.rank.lost else [], bounds


def _update(last: Found, found: Found, statistic: Statistic) -> tuple[float | None, str, str]:
    """Return a statistic of the difference of two tensors, and why it is not that of their saved values.

    The reason is empty where it is; with it comes what an error says.
    """
    why, error = "Tensors were not saved", ""
    if last.value.tensor.get("data_name") and found.value.tensor.get("data_name"):
        try:
            old, new = (each.call.record.tensor(each.value.slot).load() for each in (last, found))
            if old.shape == new.shape and old.size:
                apart = np.subtract(new, old, dtype=np.result_type(new, np.float64))
                return _of_array(apart, statistic), "", ""
            why = "Saved tensors have other shapes in the next step"
        except (FormatError, OSError) as unread:
            why, error = "Saved tensors cannot be read", f" ({str(unread).rstrip('.')})"
    one, two = (statistic_of(each.value.tensor, statistic) for each in (last, found))
    return (None if one is None or two is None else abs(two - one)), why, error


def _of_array(apart: np.ndarray, statistic: Statistic) -> float:
    size = np.abs(apart) if np.iscomplexobj(apart) else apart
    norm = float(np.linalg.norm(apart.ravel()))
    return {
        "Norm": norm,
        "rms": norm / math.sqrt(apart.size),
        "Max": float(size.max()),
        "Min": float(size.min()),
        "Mean": float(size.mean()),
        "magnitude": float(np.abs(apart).max()),
    }[statistic]
