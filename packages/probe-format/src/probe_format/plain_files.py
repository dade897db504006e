"""Read a dump's files without following links, which could lead anywhere."""

from __future__ import annotations

from pathlib import Path

from .errors import FormatError

__all__ = ["is_file", "read_plain", "refuse_link"]


def refuse_link(path: Path) -> None:
    """Raise FormatError when ``path`` is a link."""
    if path.is_symlink():
        raise FormatError(
            f"{path} is a link, and a dump is read in its own folder. Put what it leads to there."
        )


def read_plain(path: Path) -> bytes:
    """Return the content of a file. Raises FormatError when it is a link, OSError when it cannot be read."""
    refuse_link(path)
    return path.read_bytes()


def is_file(path: Path) -> bool:
    """Return whether there is such a file; never raises, whatever name a document holds."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long, or not encodable in this file system
        return False
