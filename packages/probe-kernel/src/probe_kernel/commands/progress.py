"""How far a conversion is, for people."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from probe_kernel.convert.convert_file import Outcome

__all__ = ["Progress"]


class Progress:
    """A bar on a terminal; a line every few seconds where nobody watches one."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total, self._stream = total, stream or sys.stderr
        self._live = self._stream.isatty()
        self._done = self._bad = 0
        self._last = time.monotonic()

    def step(self, outcome: Outcome) -> None:
        """One more file is done."""
        self._done += 1
        self._bad += bool(outcome.faults)
        now = time.monotonic()
        if now - self._last < (0.1 if self._live else 5.0) and self._done < self._total:
            return
        self._last = now
        share = self._done / max(self._total, 1)
        bad = f", {self._bad} with faults" if self._bad else ""
        if self._live:
            bar = "#" * round(30 * share)
            self._stream.write(f"\r[{bar:<30}] {self._done}/{self._total} files{bad}")
            if self._done == self._total:
                self.end()
        else:
            self._stream.write(f"{self._done}/{self._total} files{bad}\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the bar's line, so that what is printed next has its own."""
        if self._live:
            self._stream.write("\n")
