"""Faults that a test puts into a function of ours, and what must come of them: nothing that the user notices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["broken"]


@contextmanager
def broken(owner: Any, name: str) -> Iterator[list[int]]:
    """While open, that function of ours raises; how often it did."""
    original, times = getattr(owner, name), [0]

    def raises(*args: Any, **kwargs: Any) -> Any:
        times[0] += 1
        raise ZeroDivisionError("injected")

    setattr(owner, name, raises)
    try:
        yield times
    finally:
        setattr(owner, name, original)
