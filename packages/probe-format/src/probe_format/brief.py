"""Values out of files in messages: whatever somebody put there, a message stays one that a person can read."""

from __future__ import annotations

import reprlib
from typing import Any

__all__ = ["brief", "cut", "text"]

_MOST = 100


def brief(value: Any, most: int = _MOST) -> str:
    """``repr(value)``, or the beginning of it; of nested values the outer levels."""
    if isinstance(value, str):
        return repr(value) if len(value) <= most else f"{value[:most]!r}..."
    try:
        return cut(_repr.repr(value), most)
    except (ValueError, RecursionError):  # an integer of more digits than Python writes
        return f"a {type(value).__name__}"


def text(value: Any) -> str:
    """A text as it is; anything else as `brief` has it."""
    return value if isinstance(value, str) else brief(value)


def cut(sentence: str, most: int) -> str:
    """The sentence, or its beginning."""
    return sentence if len(sentence) <= most else f"{sentence[: most - 3]}..."


_repr = reprlib.Repr()
_repr.maxlevel = 4
_repr.maxstring = _repr.maxother = _repr.maxlong = _MOST
_repr.maxtuple = _repr.maxlist = _repr.maxdict = 12
