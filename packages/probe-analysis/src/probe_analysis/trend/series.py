"""Hold one number of a tensor, such as its norm, for each step and rank, and tell by how many times it differs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property

from attrs import field, frozen


@frozen
class Point:
    """Hold one value.

    value: NaN or infinite where the tensor's own is, None where the record has none.
    folder: that of its process, as ``rank1``, which tells processes apart that share a rank, or have none.
    """

    step: int
    rank: int | None
    value: float | None
    folder: str


@frozen(slots=False)
class Series:
    """Hold the values of one tensor over steps and ranks.

    layer: the qualified name of its module; of a function's call, the record's name.
    what: which tensor of the layer it is, as ``weight`` or ``output.0``.
    points: by step, then by rank.
    place: its place among the layers, in the order of execution.
    change: by how many times the values differ over the steps: the largest magnitude through the smallest on one
        rank (where signs differ, their distance through it), on the rank where that is the most. Infinite where a
        value is not finite, or becomes zero; zeros that come first, as of a new bias, do not count.
    apart: the same over the ranks of one step, in the step where that is the most.
    """

    layer: str
    what: str
    points: tuple[Point, ...] = field(repr=False)
    place: int
    change: float
    apart: float

    @property
    def name(self) -> str:
        """Return layer and tensor, as ``blocks.0.up.weight``."""
        return f"{self.layer}.{self.what}" if self.layer else self.what

    @cached_property
    def broken(self) -> Point | None:
        """Return its first value that is not finite."""
        return next((p for p in self.points if p.value is not None and not math.isfinite(p.value)), None)

    def of_step(self, step: int) -> float | None:
        """Return its value in a step: of several ranks that of the largest magnitude, or one that is not finite."""
        return max(self._by_step.get(step, ()), key=magnitude, default=None)

    @cached_property
    def _by_step(self) -> dict[int, list[float]]:
        found: dict[int, list[float]] = {}
        for point in self.points:
            if point.value is not None:
                found.setdefault(point.step, []).append(point.value)
        return found


def of_each(points: Iterable[Point]) -> list[list[Point]]:
    """Return the points of each process."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.folder, []).append(point)
    return [*found.values()]


def span(values: Iterable[float | None]) -> float:
    """Return by how many times values differ; 1 when they do not, infinity where one has no size.

    That is the largest magnitude through the smallest; where signs differ, the distance through the smallest.
    """
    there = [value for value in values if value is not None]
    sizes = [abs(value) for value in there]
    if not sizes or max(sizes) == 0.0 == min(sizes):
        return 1.0
    if not all(math.isfinite(size) for size in sizes) or min(sizes) == 0.0:
        return math.inf
    return (max(0.0, *there) - min(0.0, *there)) / min(sizes)


def without_first_zeros(values: Iterable[float | None]) -> tuple[float | None, ...]:
    """Return the values without the zeros that come first, unless there is nothing else."""
    whole = tuple(values)
    first = next((i for i, value in enumerate(whole) if value), 0)
    return whole[first:]


def begins_with_zero(points: Iterable[Point]) -> bool:
    """Return whether a process's values are zero at first, and then are not."""
    there = [point.value for point in points if point.value is not None]
    return there[:1] == [0.0] and any(there)


def magnitude(value: float) -> float:
    """Return how large a number is; NaN is larger than all."""
    return abs(value) if value == value else math.inf
