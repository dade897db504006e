"""Print on the terminal: a command's result, messages, progress.

Names of modules and files and texts of errors come from outside: what could give the terminal orders is escaped.
"""

import re
import sys
import time
from typing import TextIO

#: C0 but for the end of a line, DEL, C1, ends of lines that only Unicode knows, what turns the direction of text, and
#: halves of surrogate pairs, which no terminal and no font can show.
_ORDERS = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return the text with each control character as ``\\u001b``, which JSON reads as well. Ends of lines stay."""
    return _ORDERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(*lines: str, now: bool = False) -> None:
    """Print lines of a command's result on stdout.

    now: without waiting until more is there to print.
    """
    _print(sys.stdout, lines, now)


def tell(*lines: str) -> None:
    """Print on stderr what is no part of the result, as the message of an error."""
    _print(sys.stderr, lines, False)


def _print(stream: TextIO | None, lines: tuple[str, ...], now: bool) -> None:
    for line in lines if stream is not None else ():  # None where the process began with it closed
        print(printable(line).replace("\n", "\\n"), file=stream, flush=now)


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
        line = printable(line)
        self._stream.write(f"\r{line}" if self.live else f"{line}\n")
        self._stream.flush()

    def end(self) -> None:
        """End the line on the terminal, so that what is printed next begins a line of its own."""
        if self._open:
            self._open = False
            self._stream.write("\n")
            self._stream.flush()
