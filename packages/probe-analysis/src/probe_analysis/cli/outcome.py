"""End a command of this package: the exit code 1 means a finding here, so what cannot be read gets another."""

from __future__ import annotations

from collections.abc import Callable

from probe_format.cli import exit_code as ended

__all__ = ["exit_code"]


def exit_code(command: str, work: Callable[[], int]) -> int:
    """Run a command and return its exit code: its own, 2 where a dump cannot be read, 130 after Ctrl-C.

    command: its name, for the message.
    work: does it, and returns its code.
    """
    return ended(command, work, failed=2)
