"""Find what stands at a name."""

from __future__ import annotations

import inspect
import sys
from typing import Any

__all__ = ["go_down", "is_function", "name_of", "resolve_owner"]


def resolve_owner(path: str) -> Any | None:
    """The module or class at a dotted path if it is already imported, else None; never imports anything.

    Probe must not import torch_npu or mindspeed for a user who does not: both rewrite torch when imported.
    """
    parts = path.split(".")
    found: Any = sys.modules.get(parts[0])
    for end, part in enumerate(parts[1:], start=2):
        if found is None:
            return None
        found = sys.modules.get(".".join(parts[:end])) or getattr(found, part, None)
    return found


def go_down(base: Any, name: str) -> tuple[Any, str]:
    """(The object that carries the last part of a dotted name, that part); the object is None if the way
    ends."""
    *way, last = name.split(".")
    for part in way:
        base = getattr(base, part, None)
    return base, last


def is_function(owner: Any, name: str) -> bool:
    """Whether owner.name can be replaced by a wrapper."""
    found = getattr(owner, name, None)
    return callable(found) and not inspect.isclass(found)


def name_of(owner: Any) -> str:
    """A module's or class's name, for messages and prefixes."""
    return str(getattr(owner, "__name__", None) or type(owner).__name__)
