"""Print the result of a command, or write all of it to a file: as a table, Markdown, CSV or JSON."""

import argparse
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from probe_format.terminal import say, tell

from probe_analysis.result import Framed
from probe_analysis.whole_file import write_whole

Rows = Sequence[Mapping[str, Any]]
Writer = Callable[[Sequence[str], Rows], str]


def show(
    command: str,
    found: Framed,
    arguments: argparse.Namespace,
    story: Iterable[str],
    rows: Rows = (),
    more: str = "",
    total: int = 0,
) -> None:
    """Print a result for people, and write all of it to ``--output``; or print that, for a program.

    rows: what people are shown below the story. more: what there is when they are not shown all.
    total: how many rows there are, where these are only the first.
    """
    place, form = arguments.output, arguments.format
    form = SUFFIXES.get(Path(place).suffix.lower(), form) if place and form == "table" else form
    if form != "table" and not place:
        say(*_text(command, found, form).split("\n"))  # for a program: nothing else on standard output
        tell(found.sentence, *found.remarks)
        return
    say(*story, *(f"note: {remark}" for remark in found.remarks))
    if rows[: arguments.rows] and not place:
        say("", *table(rows[: arguments.rows], "table").split("\n"))
        if (left := max(total, len(rows)) - arguments.rows) > 0:
            say(f"... and {left} {more}: --rows N or -o FILE shows them")
    if place:  # where it cannot be written, what was found is on the terminal
        write_whole(place, _text(command, found, form) + "\n")


def _text(command: str, found: Framed, form: str) -> str:
    document = found.document(command)
    if form == "json":
        return json.dumps(document, indent=1)
    return table(document["rows"], form, found.columns.split())


def table(rows: Rows, form: str, columns: Sequence[str] = ()) -> str:
    """Return the rows in one of `FORMATS` but json. columns: the keys of the first row where none are given.

    Numbers are rounded to 6 digits where people read them, and written whole where programs do.
    """
    return _WRITERS[form](columns or [*rows[0]], rows)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def _terminal(columns: Sequence[str], rows: Rows) -> str:
    lines = [[*columns], *([_cell(value).replace("\n", "\\n") for value in row.values()] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def _markdown(columns: Sequence[str], rows: Rows) -> str:
    lines = [[*columns], ["---"] * len(columns)]
    lines += [[_plain(_cell(value)) for value in row.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Return a text as Markdown shows it within a cell: as it is, in one row."""
    return re.sub(r"\r\n?|\n", "<br>", re.sub(r"([\\|<])", r"\\\1", text))


def _csv(columns: Sequence[str], rows: Rows) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


_WRITERS: dict[str, Writer] = {"table": _terminal, "markdown": _markdown, "csv": _csv}
FORMATS = (*_WRITERS, "json")
SUFFIXES = {".csv": "csv", ".json": "json", ".md": "markdown", ".txt": "table"}
