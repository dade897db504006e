"""Declare a command of this package, and let it run: to its exit code, whoever reads, and saying how far it is."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TextIO, cast

from attrs import frozen
from probe_format.cli import exit_code
from probe_format.terminal import ProgressLine

from probe_analysis.calls.run import Progress


@frozen
class Command:
    """Run ``probe NAME``.

    description, exits: what it does, and what its exit codes say, for the help.
    options: adds its options to the parser.
    run: does it, and returns the exit code.
    """

    name: str
    description: str
    exits: str
    options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Return the exit code. argv: the words after ``probe NAME``; those of the process when None."""
        epilog = f"exit codes: {self.exits}"
        parser = argparse.ArgumentParser(f"probe {self.name}", description=self.description, epilog=epilog)
        self.options(parser)
        arguments = parser.parse_args(argv)
        work = partial(_uncollected, partial(self.run, arguments))
        with _patient_output():
            return exit_code(self.name, work, failed=2)  # 1 means a finding


@contextmanager
def _patient_output() -> Iterator[None]:
    """Go on to the exit code when the reader of the output has gone, as in ``| head``: 0 would say that all is well."""
    out = sys.stdout
    sys.stdout = cast(TextIO, _Patient(out))
    try:
        yield
    finally:
        sys.stdout = out


class _Patient:
    """Stand for a stream, and drop what is written to it once its reader has gone."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def write(self, text: str) -> int:
        try:
            return self._out.write(text)
        except BrokenPipeError:
            self._leave()
            return len(text)

    def flush(self) -> None:
        try:
            self._out.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._out.fileno())
        os.close(nowhere)


def _uncollected(work: Callable[[], int]) -> int:
    """Run without the search for garbage: it walks all calls again and again, a fifth of the time, and finds none."""
    was = gc.isenabled()
    gc.disable()
    try:
        code = work()
        sys.stdout.flush()
        return code
    finally:
        if was:
            gc.enable()


@contextmanager
def shown(command: str, unit: str = "") -> Iterator[Progress]:
    """Yield a function that shows progress, and take the line away at the end.

    command: its name, for the line.
    unit: what is counted, as ``calls``; empty where that is clear.
    """
    line = ProgressLine(terminal=0.2, elsewhere=10.0)

    def progress(label: str, done: int, total: int) -> None:
        line.show(f"probe {command}: {label}: {done} of {total} {unit}".rstrip())

    try:
        yield progress
    finally:
        line.end()
