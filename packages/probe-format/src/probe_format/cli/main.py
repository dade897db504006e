"""Run the command ``probe``: show, verify and recover dumps, without a framework."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint

from probe_format import __version__
from probe_format.errors import FormatError
from probe_format.layout import MODES
from probe_format.progress import ProgressLine
from probe_format.read.dump import Rank, Step, open
from probe_format.read.verify import STATES, Verdict, verify_rank
from probe_format.write.recovery import Recovery, recover_rank

from .added import added_commands, describe, run_added
from .bad import story
from .outcome import exit_code
from .show import heading, summary, tree
from .view import View

__all__ = ["main"]

#: Lines that the tree of non-finite records has at most, unless all are asked for.
_MOST = 20

_EXIT = """\
exit codes:
  show     0  shown                       1  not a dump, or not readable
  verify   0  every rank is complete or recovered
           1  not a dump                  3  some rank is torn      4  some rank is damaged
  recover  0  everything recovered        1  nothing to recover     3  recovered in part
  all      2  wrong arguments
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
    arguments = _parser({} if own else added_commands()).parse_args(words)
    return exit_code(arguments.command, lambda: int(arguments.run(arguments)))


def _parser(added: Mapping[str, EntryPoint]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="probe",
        description="Look at dumps by Probe and by msprobe, check them, and recover those of a killed run.",
        epilog=_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"probe-format {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (run, what) in _COMMANDS.items():
        command = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        command.set_defaults(run=run)
        command.add_argument("dir", help="a dump_path, a step folder, a rank folder, or a dump.json")
        command.add_argument("--step", type=_count, metavar="N", help="only this step")
        command.add_argument("--rank", type=_count, metavar="N", help="only this rank")
        command.add_argument("--mode", choices=MODES, help="only MindSpore's graphs, or only PyNative")
        if name == "show":
            _show_arguments(command)
    for name, entry in added.items():  # only for the list in --help: `main` runs these before it parses
        commands.add_parser(name, help=describe(entry).replace("%", "%%"), add_help=False)
    return parser


def _show_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--filter", default="", metavar="TEXT", help="only records with TEXT in their name")
    command.add_argument("--level", choices=("L0", "L1"), help="only modules (L0) or only API calls (L1)")
    command.add_argument("--depth", type=_positive, metavar="N", help="at most N levels of nesting")
    command.add_argument(
        "--bad",
        action="store_true",
        help="what is not finite: the call that made it first, how many records have it, and a few of them",
    )
    command.add_argument("--all", action="store_true", help="with --bad: the tree of all of them")
    command.add_argument(
        "--full", action="store_true", help="max, min and every digit, and the arguments that are not tensors"
    )
    command.add_argument("--brief", action="store_true", help="names without their tensors")
    command.add_argument("--stack", action="store_true", help="with the line that made the call")


def _count(text: str) -> int:
    """Return a number from 0 up. Raises ArgumentTypeError when it is not one."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


def _positive(text: str) -> int:
    """Return a number from 1 up. Raises ArgumentTypeError when it is not one."""
    if not _count(text):
        raise argparse.ArgumentTypeError("0 levels show nothing; write 1 or more")
    return int(text)


def _chosen(arguments: argparse.Namespace) -> list[Rank]:
    steps: tuple[Step, ...] = open(arguments.dir).steps
    chosen = [
        rank
        for step in steps
        for rank in step.ranks
        if arguments.step in (None, step.number)
        and arguments.rank in (None, rank.number)
        and arguments.mode in (None, step.mode)
    ]
    if not chosen:
        there = ", ".join(sorted({r.label for s in steps for r in s.ranks}))
        raise FormatError(f"{arguments.dir} has no such step, rank or mode; it has {there}.")
    return chosen


def _show(arguments: argparse.Namespace) -> int:
    view = View(
        arguments.filter,
        arguments.level,
        arguments.depth,
        arguments.bad,
        arguments.brief,
        arguments.stack,
        arguments.full,
    )
    worst = 0
    for rank in _chosen(arguments):
        try:
            _print([heading(rank), *(f"  {line}" for line in summary(rank)), ""])
            if arguments.bad:
                _print(story(rank))
            shown = _print(_few(tree(rank, view), _MOST if arguments.bad and not arguments.all else None))
            if not shown and not arguments.bad:
                print("(no record matches; 'probe show DIR --brief' lists their names)")
            print()
        except FormatError as error:
            print(f"probe show: {error}", file=sys.stderr)
            worst = 1
    return worst


def _few(lines: Iterator[str], most: int | None) -> Iterator[str]:
    """Yield the first lines, and how many more there are."""
    yield from itertools.islice(lines, most)
    more = sum(1 for _ in lines)
    if more:
        yield f"... and {more} more lines: --all shows them, --filter and --depth choose"


def _print(lines: Iterable[str]) -> int:
    printed = 0
    for line in lines:
        print(line)
        printed += 1
    return printed


def _verify(arguments: argparse.Namespace) -> int:
    progress = _progress("verify")
    verdicts: list[Verdict] = []
    for rank in _chosen(arguments):
        verdict = verify_rank(rank, progress)
        verdicts.append(verdict)
        print(f"{verdict.state:<9} {verdict.path}")
        _print([f"    {problem}" for problem in verdict.problems])
        _print([f"    ({note})" for note in verdict.notes])
    worst = max((verdict.state for verdict in verdicts), key=STATES.index)
    return {"complete": 0, "recovered": 0, "torn": 3, "damaged": 4}[worst]


def _recover(arguments: argparse.Namespace) -> int:
    found: list[Recovery] = []
    for rank in _chosen(arguments):
        recovery = recover_rank(rank)
        found.append(recovery)
        amount = (
            f" {recovery.records} records, {recovery.tensors} tensors."
            if recovery.outcome != "nothing"
            else ""
        )
        print(f"{recovery.outcome:<8} {recovery.path}{':' if amount else ''}{amount}")
        print(f"    {recovery.detail}")
    outcomes = {recovery.outcome for recovery in found}
    return 3 if "partial" in outcomes else 0 if "whole" in outcomes else 1


#: The commands of this package: what runs each, and what it does.
_COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], int], str]] = {
    "show": (_show, "print the records as a tree by module, with shapes and norms"),
    "verify": (_verify, "check schema, checksums and tensor files: complete, recovered, torn or damaged"),
    "recover": (_recover, "write the JSON files of a run that was killed, from its journal"),
}


def _progress(command: str) -> Callable[[Rank, int, int], None]:
    """Return a function that shows on stderr how many tensor files of a rank are done."""
    line = ProgressLine(terminal=0.2, elsewhere=10.0)

    def show(rank: Rank, done: int, total: int) -> None:
        text = f"probe {command}: {rank.label}: {done} of {total} tensor files"
        line.show(text, now=line.live and done == total > 1000)
        if done == total:
            line.end()

    return show
