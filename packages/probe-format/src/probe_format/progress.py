"""Show the progress of a long command on stderr."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["ProgressLine"]


class ProgressLine:
    """Print one line again and again in its place on a terminal, and new lines every few seconds elsewhere.

    terminal: the least time between two lines on a terminal, in seconds.
    elsewhere: the same where the stream is not a terminal.
    stream: stderr when None.
    """

    def __init__(self, terminal: float, elsewhere: float, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.live = self._stream.isatty()
        self._wait = terminal if self.live else elsewhere
        self._last = time.monotonic()
        self._open = False

    def show(self, line: str, *, now: bool = False) -> None:
        """Print ``line`` unless the one before it is too recent.

        now: print it in any case.
        """
        time_now = time.monotonic()
        if time_now - self._last < self._wait and not now:
            return
        self._last = time_now
        self._open = self.live
        self._stream.write(f"\r{line}" if self.live else f"{line}\n")
        self._stream.flush()

    def end(self) -> None:
        """End the line on the terminal, so that what is printed next begins a line of its own."""
        if self._open:
            self._open = False
            self._stream.write("\n")
            self._stream.flush()
