"""Define the options that several commands of this package have."""

from __future__ import annotations

import argparse
import math
from typing import Any

from probe_format.cli import whole_number

from probe_analysis.align.mapping import load_mapping
from probe_analysis.compare.tolerance import Tolerance

from .table import FORMATS

#: What `add_comparison` adds, as attributes of the parsed arguments.
COMPARISON = ("noise", "map", "tolerance", "statistics_only")

Options = argparse.ArgumentParser | argparse._ArgumentGroup


def part(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return this part as keyword arguments of what reads a dump."""
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
