"""The folder of a dump, looked at without making it."""

from __future__ import annotations

import os

__all__ = ["unwritable"]


def unwritable(path: str | os.PathLike[str]) -> str | None:
    """Why nothing can be written below ``path``, or None. The folder need not exist, and is not made."""
    there = os.path.abspath(path)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return f"{there} is a file, so there can be no folder {os.fspath(path)}."
    if not os.access(there, os.W_OK | os.X_OK):
        return f"there is no permission to write to {there}."
    return None
