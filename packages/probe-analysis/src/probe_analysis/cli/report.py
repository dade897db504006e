"""Run ``probe report DIR [DIR2] -o report.html``: write one page that shows a dump, or two and how they differ."""

import argparse
from pathlib import Path

from probe_format.cli import Command, add_dump, add_part, shown
from probe_format.terminal import say

from probe_analysis.report.report import report

from .options import COMPARISON, add_comparison, comparison, part


def _run(arguments: argparse.Namespace) -> int:
    alone = [f"--{name.replace('_', '-')}" for name in COMPARISON if getattr(arguments, name)]
    if alone and arguments.other is None:
        arguments.refuse(f"{', '.join(alone)}: only with a second dump, to compare with")
    with shown("report", "calls") as progress:
        how = part(arguments) | comparison(arguments)
        page = report(arguments.dir, arguments.other, progress=progress, **how)
        page.write(arguments.output)
    if page.diff is not None:
        say(f"{page.diff.verdict.state}: {page.diff.verdict.sentence}")
    if page.non_finite is not None and page.non_finite.first is not None:
        say(f"{page.non_finite.first.run.label}: {page.non_finite.first.sentence}")
    for label, why in page.unread.items():
        say(f"{label}: {why}")
    size = Path(arguments.output).stat().st_size
    say(f"wrote {arguments.output} ({size / 1e6:.1f} MB): open it in a browser")
    return 0


def _options(parser: argparse.ArgumentParser) -> None:
    add_dump(parser)
    parser.add_argument("other", nargs="?", metavar="dir2", help="a second one, to compare with")
    page = "the page (report.html)"
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help=page)
    add_part(parser)
    add_comparison(parser.add_argument_group("with two dumps, as in probe diff"))
    parser.set_defaults(refuse=parser.error)


main = Command(
    "report",
    "Write one HTML page that shows a dump, or two and how they differ. It needs no network.",
    _options,
    _run,
    "0 the page is written, whatever it shows; 2 the dumps cannot be read or compared",
    finds=True,
)
