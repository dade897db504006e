"""Turn the watch files of a dump into data of the HTML report: curves of norms, and a finding on non-finite ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from probe_format.watch import KINDS, WatchFile, watch_files

from probe_analysis.trend.trend import Trend, watched_trend

from .findings import finding
from .page import numbers, whole

#: How many numbers that are not finite are told.
_MOST_BAD = 200


def watched_in(path: Path, *, step: int | None, rank: int | None) -> dict[str, Any] | None:
    """Return what the page shows of the watch files of a dump; None where there are none, or none of these.

    step, rank: only these; None for all. Raises FormatError when one is no watch file.
    """
    files = [file for file in watch_files(path) if rank in (None, file.rank)]
    if not any(step in (None, row.step) for file in files for row in file.rows):
        return None
    kinds = [kind for kind in KINDS if any(True for file in files for _ in file.of_kind(kind))]
    bad = _bad(files, step)
    return {
        "quantities": [_curves(watched_trend(files, kind, step=step, rank=rank), files) for kind in kinds],
        "bad": [[*each] for each in islice(bad, _MOST_BAD)],
        "more": sum(1 for _ in bad),
        "skipped": sum(row.skipped for file in files for row in file.rows if step in (None, row.step)),
    }


def watched_finding(found: dict[str, Any], which: str) -> dict[str, Any]:
    """Return as a finding whether all that was watched is finite. which: dump, in words."""
    if not found["bad"]:
        return finding({"kind": "watched"}, "same", which, "No norm of any step is infinite or NaN.")
    step, rank, kind, name, nan, inf = found["bad"][0]
    on = "" if rank is None else f" on rank {rank}"
    of = f"{nan:,} NaN and {inf:,} infinite elements" if nan or inf else "elements that are not finite"
    count = len(found["bad"]) + found["more"]
    more = f" In all {count:,} norms are not finite." if count > 1 else ""
    said = f"Step {step}{on}: {name} ({kind}) has {of}.{more}"
    return finding({"kind": "watched"}, "different", which, said)


def _bad(
    files: Sequence[WatchFile], step: int | None
) -> Iterator[tuple[int, int | None, str, str, int, int]]:
    """Yield (step, rank, kind, tensor, NaN, infinite) of each norm that is not finite, by step."""
    rows = [(row.step, place, row) for place, file in enumerate(files) for row in file.rows]
    for number, place, row in sorted(rows, key=lambda each: each[:2]):
        bad = step in (None, number) and files[place].bad(row)
        for i, column in enumerate(files[place].columns if bad else ()):
            norm = row.norm(i)
            if norm is not None and not math.isfinite(norm):
                yield number, files[place].rank, column.kind, column.name, *row.bad.get(i, (0, 0))


def _curves(found: Trend, files: Sequence[WatchFile]) -> dict[str, Any]:
    """Return the numbers of a quantity; of steps that are one point, the largest. Where there is none it is NaN."""
    ends = [*found.steps[1:], 1 << 62]
    totals = []
    for file in files:
        largest = [math.nan] * len(found.steps)
        at = 0
        for row in sorted(file.rows, key=lambda row: row.step):
            while row.step >= ends[at]:
                at += 1
            total = file.total(row, found.quantity) if row.step >= found.steps[at] else None
            if total is not None and not total <= largest[at] and not math.isinf(largest[at]):
                largest[at] = total if total == total else math.inf
        totals.append(numbers(largest))
    return {
        "quantity": found.quantity,
        "sentence": f"{found.sentence}.",
        "notes": list(found.notes),
        "steps": whole(found.steps),
        "ranks": list(found.ranks),
        "totals": totals,
        "names": [series.name for series in found.series],
        "change": numbers([found.ranked(series) for series in found.series]),
        "values": [
            numbers([_shown(series.of_step(step)) for step in found.steps]) for series in found.series
        ],
    }


def _shown(value: float | None) -> float:
    return math.nan if value is None else value if value == value else math.inf
