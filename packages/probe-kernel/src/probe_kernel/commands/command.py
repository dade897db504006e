"""Provide what the subcommands of ``probe kernel`` share: arguments, the chosen iterations, and the report."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from probe_format import cli
from probe_format.errors import FormatError
from probe_format.terminal import tell

from probe_kernel.read.dump import Dump, open
from probe_kernel.read.iteration import Iteration

T = TypeVar("T")


def add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, help="the folder given to the dumper, or any folder in it")


def add_part(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    cli.add_part(parser, "only this step or iteration", "only this rank or device")


def add_out(parser: argparse.ArgumentParser, what: str, *, required: bool = True) -> None:
    parser.add_argument("-o", "--out", type=Path, required=required, metavar="DIR", help=what)


def chosen(arguments: argparse.Namespace) -> tuple[Dump, list[Iteration], list[str]]:
    """Return the dump, those of its iterations that --rank and --step select, and its problems.

    Raises FormatError when they select none.
    """
    dump = open(arguments.dir)
    ranks = [rank for rank in dump.ranks if arguments.rank in (None, rank.number)]
    iterations = [iteration for rank in ranks for iteration in rank.iterations]
    found = [each for each in iterations if arguments.step in (None, each.folder.number)]
    if not found:
        there = "; ".join(iteration.label for iteration in list(dump.iterations)[:10])
        raise FormatError(f"{arguments.dir} has no such rank or step. It has: {there}.")
    return dump, found, list(dump.problems)


def tried(read: Callable[[], T], problems: list[str]) -> T | None:
    """Return what ``read`` returns; None where it cannot, and ``problems`` gets a sentence that says why."""
    try:
        return read()
    except (FormatError, OSError) as error:
        problems.append(str(error))
        return None


def report(problems: Sequence[str]) -> int:
    tell(*(f"probe kernel: {problem}" for problem in problems[:50]))
    if len(problems) > 50:
        tell(f"probe kernel: ... and {len(problems) - 50} more.")
    return 3 if problems else 0
