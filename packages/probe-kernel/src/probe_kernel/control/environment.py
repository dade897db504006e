"""Change environment variables for a block."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["changed"]


@contextmanager
def changed(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set each variable, or remove it where the value is None; restore all of them at the end of the block."""
    before = {name: os.environ.get(name) for name in variables}
    try:
        _apply(variables)
        yield
    finally:
        _apply(before)


def _apply(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
