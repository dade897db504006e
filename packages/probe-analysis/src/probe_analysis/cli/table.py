"""Write rows as a table for a terminal, as Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from probe_format.jsonio import finite
from probe_format.terminal import say

from probe_analysis.whole_file import write_whole

Rows = Sequence[Mapping[str, Any]]
Writer = Callable[[Rows], str]


def table(rows: Rows, form: str) -> str:
    """Return the rows in one of `FORMATS`; the keys of the first row are the columns. Empty without rows.

    Numbers are rounded to 6 digits where people read them, and written whole where programs do.
    """
    return FORMATS[form](rows) if rows or form == "json" else ""


def write_table(rows: Rows, form: str, path: str) -> None:
    write_whole(path, table(rows, form) + "\n")


def print_rows(rows: Rows, form: str, most: int, more: str) -> None:
    """Print the first rows after a blank line, and how many ``more`` there are; nothing where none is to be shown."""
    if not rows[:most]:
        return
    say("", *table(rows[:most], form).split("\n"))
    if len(rows) > most:
        say(f"... and {len(rows) - most} {more}: --rows N or -o FILE shows them")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def _terminal(rows: Rows) -> str:
    lines = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def _markdown(rows: Rows) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    lines += [[_cell(value).replace("|", "\\|") for value in row.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _csv(rows: Rows) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


def _json(rows: Rows) -> str:
    """Write numbers that are not finite as Probe's own files do: JSON has none."""
    strict = ({k: finite(v) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return json.dumps(list(strict), indent=1)


FORMATS: dict[str, Writer] = {"table": _terminal, "markdown": _markdown, "csv": _csv, "json": _json}
"""Name of a format -> what writes it."""
