"""Show how far a command is, while it reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from probe_format.terminal import ProgressLine

from probe_analysis.calls import Progress


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
