"""Remember which function each replacement replaces."""

from __future__ import annotations

from typing import Any

from .places import Function
from .stale_references import Own

__all__ = ["forget_original", "original_of", "originals_by_id", "remember_original"]

_originals: dict[Function, Function] = Own()


def original_of(function: Any) -> Any:
    """Return the function that a wrapper replaces; anything else is returned as it is."""
    try:
        return _originals.get(function, function)
    except TypeError:  # not hashable, so not a wrapper
        return function


def remember_original(replacement: Function, original: Function) -> None:
    """Let `original_of` know a replacement."""
    _originals[replacement] = original


def forget_original(replacement: Function) -> None:
    """Undo `remember_original`."""
    _originals.pop(replacement, None)


def originals_by_id() -> dict[int, Any]:
    """Return a new dict with the original of every wrapper, by id(wrapper)."""
    return {id(wrapper): original for wrapper, original in _originals.items()}
