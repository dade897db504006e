"""Run ``probe report DIR [DIR2] -o report.html``: write one page that shows a dump, or two and how they differ."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from probe_format.cli import add_rank, add_step
from probe_format.terminal import say

from probe_analysis.report import report

from .comparison import OPTIONS, add_comparison, comparison
from .outcome import exit_code
from .progress import shown

__all__ = ["main"]

_EXIT = "exit codes: 0 the page is written, whatever it shows; 2 the dumps cannot be read or compared"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    argv: the words after ``probe report``; those of the process when None.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.other is None:
        alone = [f"--{name.replace('_', '-')}" for name in OPTIONS if getattr(arguments, name)]
        if alone:
            parser.error(f"{', '.join(alone)}: only with a second dump, to compare with")
    return exit_code("report", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    with shown("report", "calls") as progress:
        page = report(
            arguments.dir,
            arguments.other,
            step=arguments.step,
            rank=arguments.rank,
            progress=progress,
            **comparison(arguments),
        )
        page.write(arguments.output)
    if page.diff is not None:
        say(f"{page.diff.verdict.state}: {page.diff.verdict.sentence}")
    if page.non_finite is not None and page.non_finite.first is not None:
        say(f"{page.non_finite.first.run.label}: {page.non_finite.first.sentence}")
    for label, why in page.unread.items():
        say(f"{label} is not on the page: {why}")
    size = Path(arguments.output).stat().st_size
    say(f"wrote {arguments.output} ({size / 1e6:.1f} MB): open it in a browser")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="probe report",
        description="Write one HTML page that shows a dump, or two and how they differ. It needs no network.",
        epilog=_EXIT,
    )
    parser.add_argument("dir", help="a dump_path, a step folder, a rank folder, or a dump.json")
    parser.add_argument("other", nargs="?", metavar="dir2", help="a second one, to compare with")
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="FILE", help="the page (report.html)"
    )
    add_step(parser)
    add_rank(parser)
    two = parser.add_argument_group("with two dumps, as in probe diff")
    add_comparison(two)
    return parser
