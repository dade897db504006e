"""Run the command ``probe kernel``: look at kernel dumps, find a script line's kernels, convert, export, check."""

import argparse
import sys
from collections.abc import Sequence

from probe_format.cli import run_one_of

from probe_kernel.commands.reading import CHECK, CONFIG, FIND, SHOW
from probe_kernel.commands.writing import CONVERT, EXPORT, STATISTICS

from . import __version__

_EXIT = """\
exit codes: 0 done; 1 no kernel dump, no such line, a wrong control file, or nothing to do; 3 done, but some files
could not be understood or read (each is named); 2 wrong arguments; 130 stopped by Ctrl-C
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``probe kernel`` and return its exit code.

    argv: the words after ``probe kernel``; sys.argv's when None.
    """
    parser = argparse.ArgumentParser(
        prog="probe kernel",
        description="Look at kernel dumps by MindSpore and Ascend.",
        epilog=_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"probe-kernel {__version__}")
    parser.set_defaults(tool=f"probe-kernel {__version__}")
    return run_one_of(tuple(COMMANDS.values()), parser, sys.argv[1:] if argv is None else argv)


COMMANDS = {each.name: each for each in (SHOW, FIND, CONVERT, CHECK, STATISTICS, EXPORT, CONFIG)}
