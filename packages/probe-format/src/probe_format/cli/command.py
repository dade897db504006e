"""Define what a command of ``probe`` is: its options, how it is run, how errors become messages and exit codes.

Every package makes its commands of this class; the options and the progress line that they share are here too.
"""

import argparse
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TextIO, cast

from attrs import frozen

from probe_format.errors import ProbeError
from probe_format.suggest import did_you_mean
from probe_format.terminal import ProgressLine, tell

Options = argparse.ArgumentParser | argparse._ArgumentGroup


@frozen
class Command:
    """Describe ``probe NAME``, or a command below one (`run_one_of`), and run it.

    what, exits: what it does, and what its exit codes say, for the help.
    run: does it, and returns the exit code.
    finds: whether code 1 means a finding. Then 2 means that nothing could be read, and the code is right even where
        the reader of the output (``| head``) has gone.
    """

    name: str
    what: str
    options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    exits: str = ""
    finds: bool = False

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Return the exit code. argv: the words after ``probe NAME``; those of the process when None."""
        codes = f"exit codes: {self.exits}"
        parser = argparse.ArgumentParser(f"probe {self.name}", description=self.what, epilog=codes)
        self.options(parser)
        return self.code(self.name, parser.parse_args(argv))

    def code(self, name: str, arguments: argparse.Namespace) -> int:
        """Run it, and return its exit code, 130 after Ctrl-C. name: of the command in messages, as ``kernel convert``.

        Raises BrokenPipeError, after which ``probe`` itself ends quietly.
        """
        failed = 2 if self.finds else 1
        try:
            with _to_the_end() if self.finds else nullcontext():
                return self.run(arguments)
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            tell(f"probe {name}: stopped.")
            return 130
        except MemoryError:
            tell(f"probe {name}: there is not enough memory for this. A single step or rank may fit.")
            return failed
        except (ProbeError, OSError) as error:
            tell(*f"probe {name}: {error}".split("\n"))
            return failed


def run_one_of(
    commands: Sequence[Command],
    parser: argparse.ArgumentParser,
    words: Sequence[str],
    others: Mapping[str, str] | None = None,
    absent: Sequence[str] = (),
) -> int:
    """Run the command that the first word names, and return its exit code; 2 where there is none.

    parser: has the options that stand before the command.
    others: name -> help of commands that are not run from here.
    absent: the names of commands that may not be installed, for the hint after a misspelt name.
    """
    others = others or {}
    known = list(dict.fromkeys([*(each.name for each in commands), *absent, *others]))
    if words and not words[0].startswith("-") and words[0] not in known:
        hint = did_you_mean(words[0], known) or f"There are {', '.join(known)}."
        parser.error(f"there is no command {words[0]!r}. {hint}")
    below = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for each in commands:
        what = each.what
        own = below.add_parser(each.name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        own.set_defaults(work=each, prog=own.prog.removeprefix("probe "))
        each.options(own)
    for name, what in others.items():
        below.add_parser(name, help=what.replace("%", "%%"), add_help=False)
    arguments = parser.parse_args(words)
    command: Command = arguments.work
    return command.code(arguments.prog, arguments)


def add_dump(parser: Options, name: str = "dir") -> None:
    """Add the argument of a dump."""
    parser.add_argument(name, help="a dump_path, a step folder, a rank folder, or a dump.json")


def add_part(parser: Options, step: str = "only this step", rank: str = "only this rank") -> None:
    """Add ``--step N`` and ``--rank N``. step, rank: their help; without one, that option is left out."""
    for option, what in (("--step", step), ("--rank", rank)):
        if what:
            parser.add_argument(option, type=whole_number, metavar="N", help=what)


def whole_number(text: str) -> int:
    """Return a number from 0 up, as the type of an argument. Raises ArgumentTypeError when it is not one."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


@contextmanager
def shown(command: str, unit: str = "") -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows progress: what is read, how much of it was, and how much there is.

    command: its name, for the line.
    unit: what is counted, as ``calls``; empty where that is clear.
    """
    line = ProgressLine(terminal=0.2, elsewhere=10.0)

    def progress(label: str, done: int, total: int) -> None:
        text = f"probe {command}: {label}: {done} of {total} {unit}".rstrip()
        line.show(text, now=line.live and done == total > 1000)
        if done == total:
            line.end()

    try:
        yield progress
    finally:
        line.end()


@contextmanager
def _to_the_end() -> Iterator[None]:
    """Go on to the exit code when the reader of the output has gone, as in ``| head``: 0 would say that all is well.

    Collect no garbage meanwhile: the search walks all calls again and again, for a fifth of the time, and finds none.
    """
    out, collects = sys.stdout, gc.isenabled()
    sys.stdout = cast(TextIO, _Patient(out))
    gc.disable()
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = out
        if collects:
            gc.enable()


class _Patient:
    """Stand for a stream, and drop what is written to it once its reader has gone."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def write(self, text: str) -> int:
        self._tried(lambda: self._out.write(text))
        return len(text)

    def flush(self) -> None:
        self._tried(self._out.flush)

    def _tried(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._out.fileno())
            os.close(nowhere)
