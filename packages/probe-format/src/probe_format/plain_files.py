"""The files of a dump are read where they are: a link in their place could lead anywhere."""

from __future__ import annotations

from pathlib import Path

from .errors import FormatError

__all__ = ["is_file", "read_plain", "refuse_link"]


def refuse_link(path: Path) -> None:
    """Raise FormatError where ``path`` is a link."""
    if path.is_symlink():
        raise FormatError(f"{path} is a link, and a dump is read in its own folder. Put what it leads to there.")


def read_plain(path: Path) -> bytes:
    """Return the content of a file. Raises FormatError when it is a link, OSError when it cannot be read."""
    refuse_link(path)
    return path.read_bytes()


def is_file(path: Path) -> bool:
    """Return whether there is such a file; no name that a document holds makes this raise."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long, or not to be written in this file system
        return False
