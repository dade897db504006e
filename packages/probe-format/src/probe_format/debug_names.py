"""debug.json: values saved one by one, by name (spec/debug.md). Names of records, and forms of gradients."""

from __future__ import annotations

import re
from typing import Any

from .errors import FormatError
from .excerpts import brief
from .names import DebugName

__all__ = ["blank", "debug_record", "gradient_record", "parse_debug_name"]

# msprobe 1.2 writes the name and the count alone, and "tensor" in file names only.
_NAME = re.compile(
    r"(?P<name>.+)\.(?P<count>0|[1-9][0-9]{0,17})(?:\.(?:debug|tensor))?", re.DOTALL | re.ASCII
)


def debug_record(name: str, count: int) -> str:
    """Return the record of the value saved under ``name``, counted from 0 in each step."""
    return str(DebugName(name, count))


def gradient_record(name: str, count: int) -> str:
    """Return the record of that value's gradients."""
    return str(DebugName(f"{name}_grad", count))


def parse_debug_name(text: str) -> DebugName:
    """Parse a record name of a debug.json: ``x.0.debug``, or as msprobe 1.2 writes it ``x.0`` or ``x.0.tensor``.

    Raises FormatError for anything else.
    """
    found = _NAME.fullmatch(text)
    if found is None:
        raise FormatError(f"{brief(text)} is no name of a saved value; 'loss.0.debug' would be.")
    return DebugName(found["name"], int(found["count"]))


def blank(value: Any) -> Any:
    """Return the form of a saved value's gradient record before anything arrives: the value with null for each leaf.

    value: encoded as spec/values.md says.
    """
    if isinstance(value, list):
        return [blank(item) for item in value]
    if isinstance(value, dict) and not any(isinstance(value.get(key), str) for key in ("type", "class_type")):
        return {key: blank(item) for key, item in value.items()}
    return None
