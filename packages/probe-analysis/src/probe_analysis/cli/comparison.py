"""Hold the options that say how two dumps are compared, for each command that compares two."""

from __future__ import annotations

import argparse
from typing import Any

from probe_analysis.align import load_mapping
from probe_analysis.compare import Tolerance

from .amount import amount

__all__ = ["OPTIONS", "add_comparison", "comparison"]

#: What `add_comparison` adds, as attributes of the parsed arguments.
OPTIONS = ("noise", "map", "tolerance", "statistics_only")


def add_comparison(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options to a parser or a group of it."""
    parser.add_argument(
        "--noise", metavar="C", help="a dump of the first run repeated: what it differs by is noise"
    )
    parser.add_argument("--map", metavar="FILE", help="names of the first run: names of the second (YAML)")
    parser.add_argument(
        "--tolerance",
        type=amount,
        metavar="X",
        help="the relative difference that one call may make, for every dtype",
    )
    parser.add_argument("--statistics-only", action="store_true", help="do not read the saved tensors")


def comparison(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options as keyword arguments of `diff` and `report`.

    Raises FormatError when the mapping cannot be read.
    """
    return {
        "noise": arguments.noise,
        "mapping": load_mapping(arguments.map) if arguments.map else None,
        "tolerance": Tolerance() if arguments.tolerance is None else Tolerance(fixed=arguments.tolerance),
        "load": not arguments.statistics_only,
    }
