"""Format a watch file as text (the command ``probe show``)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from probe_format.excerpts import text
from probe_format.watch import KINDS, Row, WatchFile

_MOST = 10


def overview(file: WatchFile) -> Iterator[str]:
    """Yield what is in a watch file: its steps, the first and last norms of each kind, and what is not finite."""
    kinds = Counter(column.kind for column in file.columns)
    steps = f"steps {file.rows[0].step} to {file.rows[-1].step}, " if file.rows else ""
    facts = [text(file.header[key]) for key in ("framework", "task") if key in file.header]
    yield f"{file.label}: {', '.join(facts)}, {steps}{len(file.rows)} rows, {file.state}"
    for kind in KINDS:
        norms = [(row.step, norm) for row in file.rows if (norm := file.total(row, kind)) is not None]
        if norms:
            (first, start), (last, end) = norms[0], norms[-1]
            of = f"{kinds[kind]} tensors"
            yield f"  {kind}: norm {start:.6g} in step {first}, {end:.6g} in step {last}, of {of}"
    bad = [row for row in file.rows if file.bad(row)]
    if bad:
        yield f"  not finite in {len(bad)} steps, first in step {bad[0].step}: {', '.join(_names(file, bad[0]))}"
    for what, why in file.unseen[:_MOST]:
        yield f"  not seen: {what} ({why})"
    for where, message in file.faults[:_MOST]:
        yield f"  fault: {where}: {message}"
    if file.rows:
        yield f"  last row: {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(file.rows[-1].time))}"


def _names(file: WatchFile, row: Row) -> list[str]:
    """Return the columns of a row that are not finite, with their counts."""
    found = []
    for i, column in enumerate(file.columns):
        norm = row.norm(i)
        if norm is not None and (norm != norm or i in row.bad):
            nan, infinite = row.bad.get(i, (0, 0))
            found.append(f"{column.kind} of {column.name} ({nan} NaN, {infinite} infinite)")
    return [*found[:_MOST], *([f"and {len(found) - _MOST} more"] if len(found) > _MOST else [])]
