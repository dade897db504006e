"""Claim a rank directory for this process alone."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
from pathlib import Path

from attrs import define
from probe_format import layout
from probe_format.safe_files import make_folder, refuse_links

__all__ = ["Claim", "claim", "in_use", "is_child"]


@define
class Claim:
    """A directory that this process holds until `release`, or until the process ends in any way.

    directory: the directory.
    """

    directory: Path
    _fd: int

    def release(self) -> None:
        """Release the directory; more calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def claim(dump_path: Path, step: int, rank: int | None, *, child: bool, overwrite: bool) -> Claim:
    """Take ``step<N>/rank<R>/``, or where that is not free, ``step<N>/proc<pid>/`` beside it.

    A directory is free when no other process holds it and, without ``overwrite``, nothing is in it.

    rank: of this process; None when not distributed.
    child: whether another process of the run started this one. Without a rank it gets ``proc<pid>/`` at once, so that
        it cannot take ``rank/`` before its parent does.
    overwrite: whether an earlier dump is removed.

    Raises OSError when a directory cannot be made, locked or cleared.
    """
    preferred = layout.rank_dir(dump_path, step, rank)
    if not (child and rank is None):
        found = _take(preferred, overwrite)
        if found is not None:
            return found
    name, again = f"proc{os.getpid()}", 0
    while (found := _take(preferred.with_name(name), False)) is None:  # pids are used again
        again += 1
        name = f"proc{os.getpid()}{again:03d}"
    return found


def _take(directory: Path, overwrite: bool) -> Claim | None:
    make_folder(directory, layout.dump_path_of(directory))
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _lock(fd) or (any(directory.iterdir()) and not overwrite):
            os.close(fd)
            return None
        if overwrite:
            _clear(directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(fd)
        raise
    return Claim(directory, fd)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: an empty directory counts as free
    return True


def in_use(directory: Path) -> bool:
    """Return whether a living process holds the directory."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _lock(fd)
    finally:
        os.close(fd)


def is_child() -> bool:
    """Return whether multiprocessing started this process."""
    return multiprocessing.parent_process() is not None


def _clear(directory: Path) -> None:
    """Remove the files of an earlier dump (`overwrite`), and no others."""
    refuse_links(directory / layout.TENSORS, directory)
    names = (layout.DUMP, layout.STACK, layout.CONSTRUCT, layout.DEBUG, layout.REPORT, layout.JOURNAL)
    for name in (*names, layout.ERRORS):
        (directory / name).unlink(missing_ok=True)
    tensors = directory / layout.TENSORS
    if tensors.is_dir():
        for path in tensors.iterdir():
            if path.suffix in (".pt", ".npy"):
                path.unlink()
