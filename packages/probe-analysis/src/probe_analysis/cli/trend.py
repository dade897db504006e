"""Run ``probe trend DIR``: say which layer's gradients, weights or activations changed most, then show the others."""

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probe_format.cli import Command, add_dump, add_part, shown
from probe_format.terminal import say, tell

from probe_analysis.trend.picture import draw, sparkline
from probe_analysis.trend.series import Series, magnitude
from probe_analysis.trend.sources import QUANTITIES, STATISTICS
from probe_analysis.trend.trend import Trend, trend

from .options import add_table, part, print_rows, table, write_table

_TABLES = {".csv": "csv", ".json": "json", ".md": "markdown", ".txt": "table"}


def _run(arguments: argparse.Namespace) -> int:
    with shown("trend") as progress:
        what = {"statistic": arguments.statistic, **part(arguments)}
        found = trend(arguments.dir, arguments.quantity, progress=progress, **what)
    rows = [_row(found, series) for series in found.series]
    if arguments.output:
        form = _TABLES.get(Path(arguments.output).suffix.lower())
        if form is None:
            draw(found, arguments.output)
        else:
            write_table(rows, form, arguments.output)
    if arguments.format != "table":
        say(*table(rows, arguments.format).split("\n"))  # for a program: nothing else on standard output
        tell(_sentence(found), *found.notes)
        return 0
    say(*_story(found))
    print_rows(rows, "table", arguments.rows, "more that changed less")
    if arguments.output:
        say(f"wrote {arguments.output}")
    return 0


def _options(parser: argparse.ArgumentParser) -> None:
    add_dump(parser)
    quantity, statistic = "what to follow (gradients)", "which number of each tensor (Norm)"
    parser.add_argument("quantity", nargs="?", choices=QUANTITIES, default="gradients", help=quantity)
    parser.add_argument("--statistic", choices=STATISTICS, default="Norm", help=statistic)
    add_part(parser)
    add_table(parser, "of the table", "a picture (.svg, .png, .pdf), or the table (.csv, .json, .md, .txt)")


def _story(found: Trend) -> Iterator[str]:
    yield _sentence(found)
    steps = f"{len(found.steps)} steps" if len(found.steps) > 1 else "1 step"
    ranks = f"{len(found.ranks)} ranks" if len(found.ranks) > 1 else "1 rank"
    calm = sum(found.ranked(series) < 2.0 for series in found.series)
    yield f"{len(found.series)} tensors over {steps} and {ranks}, {found.rule}; {calm} by less than 2 times"
    for note in found.notes:
        yield f"note: {note}"


def _sentence(found: Trend) -> str:
    first = found.series[0]
    ranked = found.ranked(first)
    what = f"{found.quantity}, {found.statistic}: {first.name}"
    broken = next((p for p in first.points if p.value is not None and not math.isfinite(p.value)), None)
    if broken is not None:
        return f"{what} is not finite from step {broken.step} on{_on(broken.rank)}."
    if ranked == 1.0:
        return f"{found.quantity}, {found.statistic}: nothing changes."
    if math.isinf(ranked):
        zero = [p for p in first.points if p.value == 0.0][-1]
        return f"{what} is zero in step {zero.step}{_on(zero.rank)}, and elsewhere is not."
    if len(found.steps) == 1 and len(found.ranks) == 1:
        return f"{what} is {ranked:.3g} times off the median layer: {_cell(first.of_step(found.steps[0]))}."
    points = [p for p in first.points if p.value is not None]
    if len(found.steps) > 1:
        points = max(([p for p in points if p.rank == r and p.value] for r in found.ranks), key=_span)
    low, high = (f(points, key=lambda p: abs(p.value or 0.0)) for f in (min, max))
    return (
        f"{what} changes most, {ranked:.3g} times: {_cell(low.value)} in step {low.step}{_on(low.rank)}, "
        f"{_cell(high.value)} in step {high.step}{_on(high.rank)}."
    )


def _span(points: list[Any]) -> float:
    sizes = [abs(p.value) for p in points]
    return max(sizes) / min(sizes) if sizes else 0.0


def _on(rank: int | None) -> str:
    return "" if rank is None else f" of rank {rank}"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _row(found: Trend, series: Series) -> dict[str, Any]:
    values = [series.of_step(step) for step in found.steps]
    there = [value for value in values if value is not None]
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    return {
        "tensor": series.name,
        "first": there[0] if there else None,
        "last": there[-1] if there else None,
        "largest": max(there, key=magnitude, default=None),
        "over steps": series.change,
        "over ranks": series.apart,
        "steps": sparkline(values, plain=plain),
    }


main = Command(
    "trend",
    "Follow one quantity over steps, layers and ranks; what changed most comes first.",
    _options,
    _run,
    "0 shown; 2 cannot be read, or nothing of the quantity was recorded",
    finds=True,
)
