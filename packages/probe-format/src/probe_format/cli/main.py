"""Run the command ``probe``: show, verify and recover dumps, without a framework."""

import argparse
import os
import sys
from collections.abc import Sequence

from probe_format.layout import MODES
from probe_format.terminal import say

from .added import COMMANDS, added_commands, describe, run_added, versions
from .command import Command, add_dump, add_part, run_one_of, whole_number

#: The flags of ``show``.
_FLAGS = {
    "bad": "what is not finite: the call that made it first, how many records have it, and a few of them",
    "all": "with --bad: the tree of all of them",
    "full": "max, min and every digit, and the arguments that are not tensors",
    "brief": "names without their tensors",
    "stack": "with the line that made the call",
}

_EXIT = """\
exit codes:
  show     0  shown                       1  not a dump, or not readable
  verify   0  every rank is complete or recovered, or empty: the run ended before its first record
           1  not a dump, or too large     3  some rank is torn      4  some rank is damaged
  recover  0  everything recovered        1  nothing to recover     3  recovered in part
  all      2  wrong arguments, or a command that is not installed
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    argv: the words after ``probe``; those of the process when None.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names may hold what the terminal cannot print
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has gone, as in `probe show ... | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(words: Sequence[str]) -> int:
    own = bool(words) and words[0] in (each.name for each in _COMMANDS)
    if words and not own and not words[0].startswith("-"):
        added = run_added(words[0], words[1:])
        if added is not None:
            return added
    parser = argparse.ArgumentParser(
        prog="probe",
        description="Look at dumps by Probe and by msprobe, check them, and recover those of a killed run.",
        epilog=_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = "show the version of each package and exit"
    parser.add_argument("--version", action=_Version, nargs=0, help=what)
    there = {} if own else {name: describe(entry) for name, entry in added_commands().items()}
    return run_one_of(_COMMANDS, parser, words, there, () if own else tuple(COMMANDS))


class _Version(argparse.Action):
    """Print the versions, which take a few milliseconds to find, only when they are asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        say(*versions())
        parser.exit()


def _dump(parser: argparse.ArgumentParser) -> None:
    add_dump(parser)
    add_part(parser)
    parser.add_argument("--mode", choices=MODES, help="only MindSpore's graphs, or only PyNative")


def _view(parser: argparse.ArgumentParser) -> None:
    _dump(parser)
    parser.add_argument("--filter", default="", metavar="TEXT", help="only records with TEXT in their name")
    parser.add_argument("--label", metavar="TEXT", help="only records of calls with this label")
    parser.add_argument("--level", choices=("L0", "L1"), help="only modules (L0) or only API calls (L1)")
    parser.add_argument("--depth", type=_positive, metavar="N", help="at most N levels of nesting")
    for flag, what in _FLAGS.items():
        parser.add_argument(f"--{flag}", action="store_true", help=what)


def _positive(text: str) -> int:
    """Return a number from 1 up. Raises ArgumentTypeError when it is not one."""
    number = whole_number(text)
    if not number:
        raise argparse.ArgumentTypeError("0 levels show nothing; write 1 or more")
    return number


def _work(arguments: argparse.Namespace) -> int:
    from .commands import RUN  # only now: help and a wrong word are answered without numpy and the reader

    return RUN[arguments.command](arguments)


_COMMANDS = (
    Command("show", "print the records as a tree by module, with shapes and norms", _view, _work),
    Command(
        "verify",
        "check schema, checksums and tensor files: complete, recovered, empty, torn or damaged",
        _dump,
        _work,
    ),
    Command("recover", "write the JSON files of a run that was killed, from its journal", _dump, _work),
)
