"""Define the options that several commands share, and print or write their results in the format asked for."""

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from probe_format.cli import whole_number
from probe_format.errors import UsageError
from probe_format.terminal import say, tell

from probe_analysis.align.mapping import load_mapping
from probe_analysis.calls.engine import Engine, in_process, in_processes, on_dask
from probe_analysis.frame import Framed
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


def add_engine(parser: Options) -> None:
    workers = "so many processes read the ranks (1)"
    parser.add_argument("--workers", type=whole_number, metavar="N", help=workers)
    engine = "the workers of a scheduler read them instead, which see the dump under the same path"
    parser.add_argument("--engine", choices=("dask",), help=engine)
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of the engine, as tcp://host:8786")


def engine(arguments: argparse.Namespace) -> Engine:
    """Return what reads the ranks. Raises UsageError for options that do not go together."""
    if (arguments.engine is None) != (arguments.scheduler is None):
        raise UsageError("--engine dask and --scheduler ADDRESS go together.")
    if arguments.engine and arguments.workers is not None:
        raise UsageError("--workers and --engine do not go together: the scheduler has the workers.")
    if arguments.workers == 0:
        raise UsageError("--workers 0 would read nothing: give the number of processes, from 1 up.")
    if arguments.engine:
        return on_dask(arguments.scheduler)
    if arguments.workers in (None, 1):
        return in_process
    return in_processes(arguments.workers, forked=sys.platform == "linux")


def add_table(parser: Options, output: str = "write all of it into this file, as its suffix says") -> None:
    """Add the options of `show`. output: the help of ``--output``."""
    what = "what to print: the findings, or all rows; json is spec/results.md"
    parser.add_argument("--format", choices=sorted(FORMATS), default="table", help=what)
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
    """Return the options of `add_comparison` as keyword arguments of `diff` and `report`.

    Raises FormatError when the mapping cannot be read.
    """
    return {
        "noise": arguments.noise,
        "mapping": load_mapping(arguments.map) if arguments.map else None,
        "tolerance": arguments.tolerance,
        "load": not arguments.statistics_only,
    }


Rows = Sequence[Mapping[str, Any]]
Writer = Callable[[Rows], str]


def show(
    command: str,
    found: Framed,
    arguments: argparse.Namespace,
    story: Iterable[str],
    rows: Sequence[Any] = (),
    more: str = "",
    row: Callable[[Any], Mapping[str, Any]] = dict,
    total: int = 0,
) -> None:
    """Print a result for people, and write all of it to ``--output``; or print that, for a program.

    rows: what people are shown below the story. more: what there is when they are not shown all.
    row: makes the cells of one of them. total: how many rows there are, where these are only the first.
    """
    place, form = arguments.output, arguments.format
    form = SUFFIXES.get(Path(place).suffix.lower(), form) if place and form == "table" else form
    if form != "table" and not place:
        say(*_text(command, found, form).split("\n"))  # for a program: nothing else on standard output
        tell(found.sentence, *found.remarks)
        return
    say(*story, *(f"note: {remark}" for remark in found.remarks))
    if rows[: arguments.rows] and not place:
        say("", *table([*map(row, rows[: arguments.rows])], "table").split("\n"))
        if (left := max(total, len(rows)) - arguments.rows) > 0:
            say(f"... and {left} {more}: --rows N or -o FILE shows them")
    if place:  # where it cannot be written, what was found is on the terminal
        write_whole(place, _text(command, found, form) + "\n")


def _text(command: str, found: Framed, form: str) -> str:
    document = found.document(command)
    return json.dumps(document, indent=1) if form == "json" else table(document["rows"], form)


def table(rows: Rows, form: str) -> str:
    """Return the rows in one of `FORMATS` but json; the keys of the first row are the columns. Empty without rows.

    Numbers are rounded to 6 digits where people read them, and written whole where programs do.
    """
    return _WRITERS[form](rows) if rows else ""


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


_WRITERS: dict[str, Writer] = {"table": _terminal, "markdown": _markdown, "csv": _csv}
FORMATS = (*_WRITERS, "json")
SUFFIXES = {".csv": "csv", ".json": "json", ".md": "markdown", ".txt": "table"}
