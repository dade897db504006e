"""Define the options that several commands of this package have, and write the rows that they choose."""

import argparse
import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from probe_format.cli import whole_number
from probe_format.jsonio import finite
from probe_format.terminal import say

from probe_analysis.align.mapping import load_mapping
from probe_analysis.compare.tolerance import Tolerance
from probe_analysis.whole_file import write_whole

#: What `add_comparison` adds, as attributes of the parsed arguments.
COMPARISON = ("noise", "map", "tolerance", "statistics_only")

Options = argparse.ArgumentParser | argparse._ArgumentGroup


def part(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"step": arguments.step, "rank": arguments.rank}


def add_number(parser: Options, option: str, default: float | None, what: str) -> None:
    """Add an option that takes a number from 0 up: a whole one where its default is one."""
    letter, kind = ("N", whole_number) if isinstance(default, int) else ("X", _amount)
    parser.add_argument(option, type=kind, default=default, metavar=letter, help=what)


def _amount(text: str) -> float:
    """Return a finite number from 0 up, as the type of an argument. Raises ArgumentTypeError when it is not one."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 up")
    return found


def add_table(parser: Options, form: str, output: str) -> None:
    """Add the options of a table. form, output: the help of ``--format`` and ``--output``."""
    parser.add_argument("--format", choices=sorted(FORMATS), default="table", help=form)
    parser.add_argument("-o", "--output", metavar="FILE", help=output)
    add_number(parser, "--rows", 20, "rows on the terminal (20)")


def add_comparison(parser: Options) -> None:
    noise = "a dump of the first run repeated: what it differs by is noise"
    parser.add_argument("--noise", metavar="C", help=noise)
    parser.add_argument("--map", metavar="FILE", help="names of the first run: names of the second (YAML)")
    what = "the relative difference that one call may make, for every dtype"
    add_number(parser, "--tolerance", None, what)
    parser.add_argument("--statistics-only", action="store_true", help="do not read the saved tensors")


def comparison(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return these options as keyword arguments of `diff` and `report`.

    Raises FormatError when the mapping cannot be read.
    """
    return {
        "noise": arguments.noise,
        "mapping": load_mapping(arguments.map) if arguments.map else None,
        "tolerance": Tolerance() if arguments.tolerance is None else Tolerance(fixed=arguments.tolerance),
        "load": not arguments.statistics_only,
    }


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
