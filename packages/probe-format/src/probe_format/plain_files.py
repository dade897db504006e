"""Read a dump's files; refuse links, which could lead anywhere, and files that do not fit into memory."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import FormatError, TooLargeError
from .safe_files import naming


@contextmanager
def in_memory(path: Path | str) -> Iterator[None]:
    """Raise TooLargeError where the block has not enough memory for a file; an OSError gets the file's name."""
    try:
        with naming(path):
            yield
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        raise TooLargeError(f"{path} is too large for the memory that is free here.") from None


def refuse_link(path: Path) -> None:
    """Raise FormatError when ``path`` is a link."""
    if path.is_symlink():
        why = "a dump is read in its own folder. Put what it leads to there"
        raise FormatError(f"{path} is a link, and {why}.")


def read_file(path: Path) -> bytes:
    """Return the content of a file. Raises TooLargeError, or OSError when it cannot be read."""
    with in_memory(path):
        return path.read_bytes()


def read_plain(path: Path) -> bytes:
    """Return the content of a file that is no link. Raises like `read_file`, and FormatError when it is one."""
    refuse_link(path)
    return read_file(path)


def is_file(path: Path) -> bool:
    """Return whether there is such a file; never raises, whatever name a document holds."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long, or not encodable in this file system
        return False
