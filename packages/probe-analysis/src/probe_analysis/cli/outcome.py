"""Let a command run to its exit code, though nobody reads its output any more, and without pauses."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


@contextmanager
def patient_output() -> Iterator[None]:
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


def uncollected(work: Callable[[], int]) -> int:
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
