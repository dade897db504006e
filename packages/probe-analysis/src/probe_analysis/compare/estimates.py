"""Estimate how far rounding would have to take each tensor that differs between two runs, from its statistics.

The statistics are collected while calls are compared; then all tensors are estimated at once (model: `level`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from attrs import define, evolve, field, frozen
from probe_format.schema import Side
from probe_format.statistics import WHOLE

from .level import COHERENT, SUMMED, Size, factor_of, mark_of, marks_of, size_of, sketched

SIDES: tuple[Side, ...] = ("in", "parameter", "out")
Column = npt.NDArray[Any]


@frozen(eq=False)
class Level:
    """Hold the level of two tensors. Both numbers are infinite where no rounding explains the difference.

    norm: what their norms tell. rest: the most that the other statistics, or their sketches, tell.
    pooled: what all statistics tell together, at most 1; with sketches the level that these tell, which is close.
    mark: what tells these two tensors from others.
    whole: whether they hold whole numbers, which are never rounded.
    """

    norm: float
    rest: float
    pooled: float
    mark: int
    whole: bool

    @property
    def largest(self) -> float:
        return max(self.norm, self.rest)


def beyond(norm: float, rest: float, expected: float) -> float:
    """Return the larger of two levels, in multiples of the expected level. norm, rest: as in `Level`."""
    if expected <= 0.0:
        return math.inf if norm > 0.0 or rest > 0.0 else 0.0
    # Norm moves by half the square of the level as well.
    return max(norm / (expected + expected * expected / 2), rest / expected)


@frozen(slots=False, eq=False)
class Levels:
    """Hold the levels of many pairs of tensors, a column of each number.

    side: the place in `SIDES` of where they are in their call. mark, whole: as in `Level`.
    norm, mean, high, low: the levels that Norm, Mean, Max and Min tell. sketch: that of the sketches; NaN without.
    length: the larger norm. count: how many elements there are, or 1. big: the largest magnitude.
    rows: the first number of the shape.
    first: a mark of the first tensor; 0 where rounding does not count, or all its elements are equal.
    second: the norm of the second tensor.
    factors: row -> what `factor_of` returns, of those with sketches.
    """

    side: Column
    mark: Column
    whole: Column
    norm: Column
    mean: Column
    high: Column
    low: Column
    sketch: Column
    length: Column
    count: Column
    big: Column
    rows: Column
    first: Column
    second: Column
    factors: Mapping[int, tuple[float, float]]

    @cached_property
    def rest(self) -> Column:
        return np.fmax(np.maximum(np.maximum(self.mean, self.high), self.low), self.sketch)

    @cached_property
    def pooled(self) -> Column:
        norm, mean, high, low = (np.fmin(x, 1.0) for x in (self.norm, self.mean, self.high, self.low))
        four = np.sqrt((norm * norm + mean * mean + high * high + low * low) / 4.0)
        return np.where(np.isnan(self.sketch), four, np.fmin(self.sketch, 1.0))

    def within(self, scale: Column) -> Self:
        """Return the levels relative to what was summed to get these tensors, where it is larger: sums cancel.

        scale: the norm of what was summed, for each pair.
        """
        at = (self.length > 0.0) & (self.length < scale) & (scale < math.inf)
        share = np.divide(self.length, scale, out=np.ones(len(at)), where=at)
        root = np.sqrt(self.count)
        big = np.maximum(self.big, self.length / root)
        most = np.maximum(big, scale / root)
        ends = np.divide(big, most, out=np.ones(len(at)), where=at)
        scaled = {"norm": share, "mean": share, "sketch": share, "high": ends, "low": ends}
        return evolve(self, **{name: getattr(self, name) * by for name, by in scaled.items()})

    def unordered(self, at: Column) -> Self:
        """Return the levels, without sketches where ``at`` says that a tensor has its rows in another order."""
        return evolve(self, sketch=np.where(at, np.nan, self.sketch)) if at.any() else self

    def at(self, row: int) -> Level:
        columns = self.norm, self.rest, self.pooled, self.mark, self.whole
        return Level(*(column[row].item() for column in columns))


@define(slots=False, eq=False)
class Told:
    """Collect what tells the level of each tensor that differs. All must be added before a level is asked for.

    side: as in `Levels`; -1 leaves a row out. number: the number of the tensor in its record, as in `add`.
    _numbers: Max, Min, Mean and Norm of either tensor. _sizes: size -> its number. _size: the number for each row.
    _known: row -> the level as in `put`, where the statistics do not tell it.
    """

    side: array[int] = field(factory=lambda: array("b"))
    number: array[int] = field(factory=lambda: array("L"))
    _numbers: array[float] = field(factory=lambda: array("d"))
    _sizes: dict[Size, int] = field(factory=dict)
    _size: array[int] = field(factory=lambda: array("L"))
    _known: dict[int, tuple[float, float, bool]] = field(factory=dict)
    _sketches: dict[int, float] = field(factory=dict)
    _factors: dict[int, tuple[float, float]] = field(factory=dict)
    _marks: dict[int, int] = field(factory=dict)

    def numbered(self, size: Size) -> int:
        """Return the number of a size, by which `add` knows it."""
        return self._sizes.setdefault(size, len(self._sizes))

    def add(self, sides: Column, sizes: Column, numbers: Column, places: Column) -> int:
        """Add tensors; return the first row.

        sides: as in `Levels`. sizes: as `numbered` has them. numbers: (tensors, 8), all finite: those of one, then of
        the other. places: the number of each tensor in its record.
        """
        begin = len(self.side)
        for column, own, of in (
            (self.side, sides, "b"),
            (self._size, sizes, "L"),
            (self._numbers, numbers, "d"),
            (self.number, places, "L"),
        ):
            column.frombytes(own.astype(of).tobytes())
        return begin

    def _add(self, side: Side, size: Size, numbers: Sequence[float]) -> int:
        one = [SIDES.index(side)], [self.numbered(size)], [numbers], [0]
        return self.add(*map(np.array, one))

    def put(
        self, side: Side, mark: int, known: tuple[float, float, bool] = (math.inf, math.inf, False)
    ) -> int:
        """Add two tensors whose level is known; return the row.

        mark: as in `Level`. known: its norm, rest and whole; by default no rounding explains the difference.
        """
        row = self._add(side, _ONE, _NONE)
        self._known[row], self._marks[row] = known, mark
        return row

    def of(self, side: Side, a: Mapping[str, Any], b: Mapping[str, Any]) -> int | None:
        """Add two tensor objects of one shape; return the row. None where not all of their statistics are finite."""
        one, two = (tuple[Any, ...](t.get(key) for key in WHOLE) for t in (a, b))
        sizes = [size_of(str(t["dtype"]), tuple(a["shape"])) for t in (a, b)]
        if not all(size.unit for size in sizes):
            if one[0] is None or two[0] is None:
                return None
            known = (0.0, 0.0, False) if one == two else (math.inf, math.inf, True)
            return self.put(side, mark_of(a, b), known)
        if not all(type(value) is float and value - value == 0.0 for value in (*one, *two)):
            return None
        row = self._add(side, max(sizes, key=lambda size: size.unit), one + two)
        if (near := sketched(a, b)) is not None:
            self._sketches[row], self._factors[row], self._marks[row] = near, factor_of(a, b), mark_of(a, b)
        return row

    @cached_property
    def levels(self) -> Levels:
        numbers = np.array(self._numbers).reshape(-1, 8)
        self._numbers = array("d")  # they are kept no longer
        side, mark = np.array(self.side), marks_of(numbers)
        known = np.array([(x.unit, x.count, x.features, x.rows) for x in self._sizes]).reshape(-1, 4)
        with np.errstate(all="ignore"):
            found = _estimates(numbers, known[self._size], side == SIDES.index("parameter"))
        for row, (found["norm"][row], rest, found["whole"][row]) in self._known.items():
            for key in ("mean", "high", "low"):
                found[key][row] = rest
        sketch = np.full(len(side), np.nan)
        for column, some in ((mark, self._marks), (sketch, self._sketches)):
            column[list(some)] = list(some.values())
        return Levels(side=side, mark=mark, sketch=sketch, factors=self._factors, **found)


_NONE, _ONE = (0.0,) * 8, Size(1.0, 1, 1, 1)


def _estimates(numbers: Column, sizes: Column, parameter: Column) -> dict[str, Column]:
    """Return what the statistics of tensors tell, by the names that columns of `Levels` have.

    parameter: which of them are parameters, whose elements were rounded each by itself.
    """
    (_, _, mean, norm, _, _, _, norm2), (unit, n, features, rows) = numbers.T, sizes.T
    length, top = np.maximum(norm, norm2), np.abs(numbers[:, [0, 1, 4, 5]]).max(axis=1, initial=0.0)
    rms, some = length / np.sqrt(n), (length > 0.0) & (n > 0.0)
    high, low, by_mean, by_norm = apart = np.abs(numbers[:, :4] - numbers[:, 4:]).T
    lost = np.isinf(apart / (top, top, np.where(some, rms, top), length)).any(axis=0)
    # Where all elements are equal, so are their errors.
    square, big = norm * norm / n - mean * mean, np.maximum(top, rms)
    alike = np.where((square > 0.0) & (np.sqrt(square) >= 4.0 * unit * rms), 1.0, n)
    width = np.array([*map(math.hypot, (top / length).tolist(), repeat(COHERENT))]) * np.sqrt(alike)
    by_norm, by_mean = by_norm / length - SUMMED, by_mean / rms - SUMMED
    told = {
        "norm": np.where(by_norm > 0.0, by_norm / np.minimum(width, 1.0), 0.0),
        "mean": np.where(by_mean > 0.0, by_mean * np.sqrt(np.where(parameter, n, features) / alike), 0.0),
        "high": high / big,
        "low": low / big,
    }
    whole, plain = (unit == 0.0) & ~lost, (unit > 0.0) & some & ~lost
    told = {key: np.where(plain, x, np.where(whole | lost, math.inf, 0.0)) for key, x in told.items()}
    own = {
        "length": (length, 0.0),
        "count": (n, 1.0),
        "big": (top, 0.0),
        "rows": (rows, 1.0),
        "second": (norm2, 0.0),
    }
    ones = marks_of(numbers[:, :4] + 0.0)  # without -0.0
    # What all elements share many tensors do.
    own["first"] = np.where(numbers[:, 0] != numbers[:, 1], ones, 0), 0
    return told | {key: np.where(plain, x, none) for key, (x, none) in own.items()} | {"whole": whole}


def level_of(a: Mapping[str, Any], b: Mapping[str, Any], side: Side = "out") -> Level | None:
    """Return the level of two tensor objects of one shape, all of whose statistics are finite; None elsewhere."""
    told = Told()
    row = told.of(side, a, b)
    return None if row is None else told.levels.at(row)
