"""Run ``probe trend DIR``: follow gradients, weights, ... over steps, layers and ranks; list or draw what changed."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probe_format.cli import Command, add_dump, add_part, shown

from probe_analysis.trend.picture import draw, sparkline
from probe_analysis.trend.series import Series, magnitude
from probe_analysis.trend.sources import QUANTITIES, STATISTICS
from probe_analysis.trend.trend import Trend, trend

from .options import add_engine, add_table, engine, part
from .output import SUFFIXES, show


def _run(arguments: argparse.Namespace) -> int:
    with shown("trend") as progress:
        what = {"statistic": arguments.statistic, "engine": engine(arguments), **part(arguments)}
        found = trend(arguments.dir, arguments.quantity, progress=progress, **what)
    place = arguments.output
    picture = place and Path(place).suffix.lower() not in SUFFIXES
    if picture:
        arguments.output = None
    rows = [_row(found, series) for series in found.series]
    show("trend", found, arguments, _story(found), rows, "more that changed less")
    if picture:  # where it cannot be written, what was found is on the terminal
        draw(found, place)
    return 0


def _options(parser: argparse.ArgumentParser) -> None:
    add_dump(parser)
    quantity, statistic = "what to follow (gradients)", "which number of each tensor (Norm)"
    parser.add_argument("quantity", nargs="?", choices=QUANTITIES, default="gradients", help=quantity)
    parser.add_argument("--statistic", choices=STATISTICS, default="Norm", help=statistic)
    add_part(parser)
    add_engine(parser)
    add_table(parser, "a picture (.svg, .png, .pdf), or all values (.csv, .json, .md, .txt)")


def _story(found: Trend) -> Iterator[str]:
    yield found.sentence
    steps = f"{len(found.steps)} steps" if len(found.steps) > 1 else "1 step"
    ranks = f"{len(found.ranks)} ranks" if len(found.ranks) > 1 else "1 rank"
    calm = sum(found.ranked(series) < 2.0 for series in found.series)
    yield f"{len(found.series)} tensors over {steps} and {ranks}, {found.rule}; {calm} by less than 2 times"


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
