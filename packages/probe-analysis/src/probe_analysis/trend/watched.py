"""Take the values of a trend from watch files; in a long run, a point is the largest value of several steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from probe_format.errors import FormatError
from probe_format.watch import WatchFile

from .series import Point, magnitude

#: How many points of a tensor are held at most, and how many of all tensors.
_MOST_STEPS, _MOST_POINTS = 500, 400_000
_WHY = {
    "moments": "they are watched with moments: true",
    "updates": "they are watched with updates: true",
    "activations": "the modules of `list` are watched",
}


def watched_values(
    files: Sequence[WatchFile], quantity: str, *, rms: bool, step: int | None, rank: int | None
) -> tuple[Mapping[tuple[str, str], list[Point]], list[int | None], list[str]]:
    """Return the norms (with ``rms``, over the root of the number of elements) of a quantity in some files.

    They are (layer, tensor) -> its points, by rank, then by step. Return also the rank of each file, and what the
    points do not say.
    step, rank: only these; None for all. Raises FormatError when there is nothing.
    """
    chosen = [file for file in files if rank in (None, file.rank)]
    steps = sorted({row.step for file in chosen for row in file.rows if step in (None, row.step)})
    names = {column.name for file in chosen for _, column in file.of_kind(quantity)}
    if not steps or not names:
        labels, why = ", ".join(file.label for file in files), _WHY.get(quantity, "no update was seen")
        raise FormatError(f"There is nothing of {quantity} in {labels}: {why}.")
    most = max(50, min(_MOST_STEPS, _MOST_POINTS // (len(names) * len(chosen))))
    size = -(-len(steps) // most)
    group = {each: steps[i - i % size] for i, each in enumerate(steps)}
    points: dict[tuple[str, str], list[Point]] = {}
    for file in chosen:
        for number, column in file.of_kind(quantity):
            scale = 1.0 / math.sqrt(column.elements) if rms and column.elements else 1.0
            largest = _largest(file, number, group)
            of = [Point(at, file.rank, value * scale, file.path.stem) for at, value in largest.items()]
            points.setdefault((column.layer, column.what), []).extend(of)
    told = {key: of for key, of in points.items() if of}
    return told, [file.rank for file in chosen], [*_notes(chosen, size)]


def _largest(file: WatchFile, number: int, group: Mapping[int, int]) -> dict[int, float]:
    """Return the largest value of a column in each group of steps. group: step -> the first one of its group."""
    found: dict[int, float] = {}
    for row in file.rows:
        value = row.norm(number) if row.step in group else None
        if value is not None:
            at = group[row.step]
            found[at] = max(found.get(at, value), value, key=magnitude)
    return found


def _notes(files: Sequence[WatchFile], size: int) -> Iterator[str]:
    """Yield what the points do not say. size: how many steps make one point."""
    for file in files:
        if file.state in ("torn", "damaged") and file.rows:
            yield f"{file.label}: {file.state}, up to step {file.rows[-1].step}"
    if size > 1:
        yield f"of each {size} steps the largest value is shown, under the first of them"
