"""Name the records of values saved one by one in debug.json (spec/debug.md)."""

from __future__ import annotations

import re

from .errors import FormatError
from .excerpts import brief
from .jsonio import meant
from .names import DebugName

__all__ = ["debug_record", "gradient_record", "parse_debug_name"]

# msprobe 1.2 writes only the name and the count; "tensor" is only in its file names.
_NAME = re.compile(
    r"(?P<name>.+)\.(?P<count>0|[1-9][0-9]{0,17})(?:\.(?:debug|tensor))?", re.DOTALL | re.ASCII
)


def debug_record(name: str, count: int) -> str:
    """Return the record name of the value saved under ``name``; ``count`` starts from 0 in each step."""
    return str(DebugName(name, count))


def gradient_record(name: str, count: int) -> str:
    """Return the record name of that value's gradients."""
    return str(DebugName(f"{name}_grad", count))


def parse_debug_name(text: str) -> DebugName:
    """Parse a debug.json's record name: ``x.0.debug``, or ``x.0`` or ``x.0.tensor`` as in msprobe 1.2.

    Raises FormatError when it has none of these forms.
    """
    found = _NAME.fullmatch(text)
    if found is None:
        raise FormatError(f"{brief(text)} is not the name of a saved value; 'loss.0.debug' would be.")
    return DebugName(meant(found["name"]), int(found["count"]))
