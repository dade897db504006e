"""Say in one sentence which tensor of a trend changes most, by how much, and between which steps and ranks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .series import Point, of_each, span

if TYPE_CHECKING:
    from .trend import Trend


def sentence_of(found: Trend) -> str:
    """Return what changes most in a trend, and from where to where."""
    first = found.series[0]
    ranked = found.ranked(first)
    what = f"{found.quantity}, {found.statistic}: {first.name}"
    if first.broken is not None:
        return f"{what} is not finite from step {first.broken.step} on{_on(found, first.broken)}."
    if ranked == 1.0:
        return f"{found.quantity}, {found.statistic}: {_unchanged(found)}."
    zeros = [p for p in first.points if p.value == 0.0]
    if len(found.steps) == 1 and len(found.ranks) == 1:
        how = "zero, and the median layer is not" if zeros else f"{ranked:.3g} times off the median layer"
        return f"{what} is {how}: {first.of_step(found.steps[0]):.4g}."
    if math.isinf(ranked) and zeros:
        zero = zeros[-1]
        return f"{what} is zero in step {zero.step}{_on(found, zero)}, and elsewhere is not."
    ends = _ends(found)
    texts = ([f"{p.value:.{digits}g}" for p in ends] for digits in (4, 9, 17))
    low, high = max(texts, key=lambda each: each[0] != each[1])  # with as many digits as tell them apart
    if low.startswith("-") != high.startswith("-"):
        by = "and its sign"
    else:
        by = f"{ranked:.3g} times" if ranked >= 1.1 else f"by {100.0 * (ranked - 1.0):.2g} %"
    where = (f"step {p.step}{_on(found, p)}" for p in ends)
    return f"{what} changes most, {by}: {low} in {next(where)}, {high} in {next(where)}."


def _ends(found: Trend) -> tuple[Point, Point]:
    """Return the smallest and the largest magnitude of what changes most, of the rank where it does.

    Where signs differ, the lowest and the highest value.
    """
    points = [p for p in found.series[0].points if p.value is not None]
    if len(found.steps) > 1:
        points = max(of_each(p for p in points if p.value), key=lambda some: span(p.value for p in some))
    points.sort(key=lambda p: p.value or 0.0)
    low, high = points[0], points[-1]
    return (low, high) if (high.value or 0.0) > 0.0 else (high, low)


def _unchanged(found: Trend) -> str:
    """Return what was compared, and is the same."""
    if len(found.steps) == 1:
        ranks, layers = "differs between ranks", "is larger or smaller than the median layer"
        what = ranks if len(found.ranks) > 1 else layers
        return f"in step {found.steps[0]}, the only one, no tensor {what}"
    begun = ", ".join(series.name for series in found.begun[:3])
    return f"nothing changes, but these are zero at first: {begun}" if begun else "nothing changes"


def _on(found: Trend, point: Point) -> str:
    whose = found.whose(point)
    return whose and f" of {whose}"
