"""Define the options that several commands share, and turn what was given into what the commands take."""

import argparse
import math
import sys
from typing import Any

from probe_format.cli import whole_number
from probe_format.errors import UsageError

from probe_analysis.align.mapping import load_mapping
from probe_analysis.calls.engine import Engine, in_process, in_processes, on_dask

from .output import FORMATS

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
