"""Leave a hole in a finished value where something comes late (spec/journal.md)."""

from __future__ import annotations

__all__ = ["hole"]


def hole(letter: str, number: int) -> bytes:
    """Return the hole of this number, for a place in an object where more members may follow.

    letter: what comes there: ``n`` numbers, ``c`` content, ``f`` a file.
    """
    return b"\x1a%b%d\x1a" % (letter.encode(), number)
