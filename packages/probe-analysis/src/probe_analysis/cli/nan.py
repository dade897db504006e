"""Run ``probe nan DIR``: say which call makes the first value that is not finite, and what is close to it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from probe_format.cli import add_rank, add_step, whole_number
from probe_format.errors import FormatError
from probe_format.terminal import say

from probe_analysis.nonfinite import Finding, NonFinite, first_non_finite

from .amount import amount
from .outcome import exit_code

__all__ = ["main"]

_EXIT = "exit codes: 0 every value is finite; 1 one is not; 2 cannot be read, or has no numbers to tell by"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    argv: the words after ``probe nan``; those of the process when None.
    """
    arguments = _parser().parse_args(argv)
    return exit_code("nan", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    found = first_non_finite(
        arguments.dir,
        step=arguments.step,
        rank=arguments.rank,
        before=arguments.before,
        factor=arguments.factor,
    )
    if found.first is None and not found.known:
        raise FormatError(found.sentence)
    say(*_story(found, arguments.risks))
    return 0 if found.first is None else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="probe nan",
        description="Find the call that makes the first NaN or infinity, over all ranks.",
        epilog=_EXIT,
    )
    parser.add_argument("dir", help="a dump_path, a step folder, a rank folder, or a dump.json")
    add_step(parser)
    add_rank(parser)
    parser.add_argument(
        "--before", type=whole_number, default=20, metavar="N", help="calls before it to show (20)"
    )
    parser.add_argument(
        "--risks", type=whole_number, default=10, metavar="N", help="values close to a limit (10)"
    )
    parser.add_argument(
        "--factor",
        type=amount,
        default=8.0,
        metavar="X",
        help="how close to overflow a value is shown (8 times)",
    )
    return parser


def _story(found: NonFinite, risks: int) -> Iterator[str]:
    first = found.first
    if first is None:
        yield found.sentence
    else:
        yield from _finding(first)
        other = found.backward if not first.call.backward else found.forward
        if other is not None:
            yield ""
            yield f"in the {'backward' if other.call.backward else 'forward'} pass: {other.sentence}"
        yield ""
        for label, count in found.counts.items():
            yield f"{label}: {count} records hold values that are not finite"
    yield from found.lost
    if found.risks:
        yield ""
        yield f"close to the limits of their dtype: {len(found.risks)}"
        for risk in found.risks[:risks]:
            yield f"  {risk.run.label} {risk.sentence}"


def _finding(finding: Finding) -> Iterator[str]:
    yield f"{finding.run.label}: {finding.sentence}"
    if finding.line:
        yield f"  {finding.line}"
    for module in finding.modules:
        yield f"  inside {module}"
    if finding.before:
        yield "the calls before it, and the range of what they returned:"
        for call, ranges in finding.led:
            yield f"  {call.name}  {ranges}"
