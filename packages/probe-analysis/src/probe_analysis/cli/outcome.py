"""End a command of this package: the exit code 1 means a finding here, so what cannot be read gets another."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

from probe_format.cli import exit_code as ended

__all__ = ["exit_code"]


def exit_code(command: str, work: Callable[[], int]) -> int:
    """Run a command and return its exit code: its own, 2 where a dump cannot be read, 130 after Ctrl-C.

    command: its name, for the message.
    work: does it, and returns its code.
    """
    return ended(command, partial(_uncollected, work), failed=2)


def _uncollected(work: Callable[[], int]) -> int:
    """Run without the search for garbage: it walks all calls again and again, a fifth of the time, and finds none."""
    was = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        if was:
            gc.enable()
