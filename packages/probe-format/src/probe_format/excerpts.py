"""Shorten values and errors for messages, which stay readable whatever a file or an object holds."""

import reprlib
from typing import Any

from .asked import asked

_MOST = 100


def brief(value: Any, most: int = _MOST) -> str:
    """Return ``repr(value)`` or its beginning; of nested values only the outer levels. Never raises.

    most: the approximate number of characters.
    """
    if isinstance(value, str):
        return repr(value) if len(value) <= most else f"{value[:most]!r}..."
    try:
        return cut(asked(_repr.repr, value), most)
    except Exception:  # an integer of more digits than Python writes, an object whose repr raises
        return f"<{type(value).__name__}>"


def error_text(error: BaseException) -> str:
    """Return ``ValueError: its message``, also where making the message raises."""
    try:
        said = asked(str, error)
    except Exception:
        said = "(its text cannot be had)"
    return f"{type(error).__name__}: {said}"


def text(value: Any) -> str:
    """Return a string as it is, and `brief` of anything else."""
    return value if isinstance(value, str) else brief(value)


def cut(sentence: str, most: int) -> str:
    """Return the sentence, or its first ``most - 3`` characters and an ellipsis."""
    return sentence if len(sentence) <= most else f"{sentence[: most - 3]}..."


_repr = reprlib.Repr()
_repr.maxlevel = 4
_repr.maxstring = _repr.maxother = _repr.maxlong = _MOST
_repr.maxtuple = _repr.maxlist = _repr.maxdict = 12
