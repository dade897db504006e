"""End a command of this package: the exit code 1 means a finding here, so what cannot be read gets another."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TextIO, cast

from probe_format.cli import exit_code as ended

__all__ = ["exit_code"]


def exit_code(command: str, work: Callable[[], int]) -> int:
    """Run a command and return its exit code: its own, 2 where a dump cannot be read, 130 after Ctrl-C.

    command: its name, for the message.
    work: does it, and returns its code.
    """
    with _patient_output():
        return ended(command, partial(_uncollected, work), failed=2)


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
