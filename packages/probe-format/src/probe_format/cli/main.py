"""Run the command ``probe``: show, verify and recover dumps, without a framework."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint

from probe_format.layout import MODES
from probe_format.terminal import say

from .added import COMMANDS, added_commands, describe, run_added, versions
from .command import add_rank, add_step, exit_code, refuse_unknown, whole_number

#: The commands of this package, and what each does. The module `commands` has them, and loads what reads dumps.
_COMMANDS = {
    "show": "print the records as a tree by module, with shapes and norms",
    "verify": "check schema, checksums and tensor files: complete, recovered, empty, torn or damaged",
    "recover": "write the JSON files of a run that was killed, from its journal",
}

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
    own = words[0] in _COMMANDS if words else False
    if words and not own and not words[0].startswith("-"):
        added = run_added(words[0], words[1:])
        if added is not None:
            return added
    there = {} if own else added_commands()
    parser = _parser(there)
    if not own:
        refuse_unknown(parser, words, (*_COMMANDS, *COMMANDS, *there))
    arguments = parser.parse_args(words)

    def work() -> int:
        from .commands import RUN  # only now: help and a wrong word are answered without numpy and the reader

        return RUN[arguments.command](arguments)

    return exit_code(arguments.command, work)


def _parser(added: Mapping[str, EntryPoint]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="probe",
        description="Look at dumps by Probe and by msprobe, check them, and recover those of a killed run.",
        epilog=_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version of each package and exit"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, what in _COMMANDS.items():
        command = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        command.add_argument("dir", help="a dump_path, a step folder, a rank folder, or a dump.json")
        add_step(command)
        add_rank(command)
        command.add_argument("--mode", choices=MODES, help="only MindSpore's graphs, or only PyNative")
        if name == "show":
            _show_arguments(command)
    for name, entry in added.items():  # only for the list in --help: `main` runs these before it parses
        commands.add_parser(name, help=describe(entry).replace("%", "%%"), add_help=False)
    return parser


class _Version(argparse.Action):
    """Print the versions, which take a few milliseconds to find, only when they are asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        say(*versions())
        parser.exit()


def _show_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--filter", default="", metavar="TEXT", help="only records with TEXT in their name")
    command.add_argument("--label", metavar="TEXT", help="only records of calls with this label")
    command.add_argument("--level", choices=("L0", "L1"), help="only modules (L0) or only API calls (L1)")
    command.add_argument("--depth", type=_positive, metavar="N", help="at most N levels of nesting")
    for flag, what in _FLAGS.items():
        command.add_argument(f"--{flag}", action="store_true", help=what)


def _positive(text: str) -> int:
    """Return a number from 1 up. Raises ArgumentTypeError when it is not one."""
    number = whole_number(text)
    if not number:
        raise argparse.ArgumentTypeError("0 levels show nothing; write 1 or more")
    return number
