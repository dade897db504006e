"""Make files and folders that no link redirects and that only the owner and the group can read."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["FILE_MODE", "FOLDER_MODE", "make_folder", "refuse_links", "replace_file"]

#: The permissions of new files and folders; the umask may take some away.
FILE_MODE = 0o640
FOLDER_MODE = 0o750


def make_folder(path: Path, below: Path | None = None) -> None:
    """Make ``path`` and what is missing above it. Raises OSError when it cannot.

    below: the folder that the user chose, which may be a link, or lie behind one; what is under it may not.
    """
    if below is not None:
        refuse_links(path, below)
    missing = []
    folder = path
    while not folder.is_dir():
        missing.append(folder)
        if folder.parent == folder:
            break
        folder = folder.parent
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.mkdir(folder, FOLDER_MODE)
    if missing and not path.is_dir():
        raise FileExistsError(errno.EEXIST, "there is a file in the way", str(path))


def refuse_links(path: Path, below: Path) -> None:
    """Raise OSError (ELOOP) when ``path``, or a folder between it and ``below``, is a link."""
    for folder in (path, *path.parents):
        if folder == below:
            return
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "it is a link, and nothing is written through one", str(folder))


def replace_file(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file so that its name always refers to a complete one.

    content: all of it, or its pieces, which are written one by one.

    Raises OSError when it cannot, and what making the content raises, changing nothing. The content is first written
    to a new file with an unpredictable name. A link at ``path`` is replaced, not followed.
    """
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(8).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, FILE_MODE)
    try:
        try:
            for piece in (content,) if isinstance(content, bytes) else content:
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(fd, rest) :]
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
