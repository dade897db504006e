"""Change environment variables for a block."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["changed"]


@contextmanager
def changed(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set each variable, or remove it where the value is None; restore all of them at the end of the block."""
    before = dict(os.environ)
    try:
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update({name: before[name] for name in variables if name in before})
