"""Claim the folders of one process in a dump, so that the steps of two processes never mix.

A claim is a lock on a folder. A step that has ended is locked too, while its report is changed or the step removed.
"""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from probe_format.layout import DUMP, dump_path_of, find_steps, holds_data, rank_dir
from probe_format.safe_files import Folder, locked, make_folder

_lock = threading.RLock()
_claims: "weakref.WeakSet[Claim]" = weakref.WeakSet()


class Claim:
    """Hold the folder of a process in the newest of its steps, until `release` or until the process ends in any way.

    Where a living process holds the folder of a rank in any step, another one with that rank writes to ``proc<pid>/``
    beside it, in all of its steps.
    """

    def __init__(self, dump_path: Path) -> None:
        """Hold nothing yet. dump_path: of the whole dump, with MindSpore's steps of both modes."""
        self._dump_path = dump_path
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._folder: Folder | None = None
        self._active = self._is_second = False
        _claims.add(self)

    def take(
        self, base: Path, step: int, rank: int | None, *, child: bool = False, new: bool = False
    ) -> Path:
        """Return the folder of a step, which is there and held from now on.

        base: where the steps are: the dump path, or a folder in it.
        rank: of this process; None when not distributed.
        child: whether another process of the run started this one. Without a rank it gets ``proc<pid>/`` at once, so
            that it cannot take ``rank/`` before its parent does. So does a fork()ed copy of a claim.
        new: whether a folder that holds data is passed over.

        Raises OSError when a folder cannot be made or locked.
        """
        if os.getpid() != self._pid:
            self._begin()
            child = True
        first = rank_dir(base, step, rank)
        make_folder(self._dump_path)
        with _lock, _alone(self._dump_path):
            if self._folder is None:
                second = (child and rank is None) or _is_taken(self._dump_path, first.name, self)
                self._is_second = self._is_second or second
            if not self._is_second and not (new and holds_data(first)) and self._hold(first):
                return first
            again, place = 0, first.with_name(f"proc{self._pid}")
            while holds_data(place) or not self._hold(place):  # pids are used again
                again += 1
                place = first.with_name(f"proc{self._pid}{again:03d}")
            return place

    def _hold(self, path: Path) -> bool:
        folder = Folder(path, dump_path_of(path)).make()
        for other in _owners(folder):
            if other is not self and not other._active:
                other.release()  # of this process, and done with it
        if not locked(folder.fd):
            folder.close()
            return False
        self.release()
        self._folder, self._active = folder, True
        return True

    def rest(self) -> None:
        """Declare that nothing more is written into the folder, which stays this process's."""
        self._active = False

    def release(self) -> None:
        """Release the folder; more calls do nothing."""
        folder, self._folder = self._folder, None
        self._active = False
        if folder is not None:
            folder.close()

    def __del__(self) -> None:
        self.release()


def in_use(dump_path: Path, rank: int | None) -> bool:
    """Return whether another process holds the folder of this rank in any step."""
    with _lock:
        return _is_taken(dump_path, rank_dir(dump_path, 0, rank).name, None)


def _is_taken(dump_path: Path, name: str, mine: Claim | None) -> bool:
    """Return whether another process holds a folder of this name in any step, or this one while it writes there.

    mine: the claim that looks for a folder; None where only other processes count.
    """
    for step in find_steps(dump_path):
        # It may not be there, or no folder.
        with Folder(step.path / name) as folder, contextlib.suppress(OSError):
            owners = list(_owners(folder))
            if (mine and any(each._active for each in owners)) or not (owners or locked(folder.fd)):
                return True
    return False


def _owners(folder: Folder) -> Iterator[Claim]:
    """Yield the claims of this process that hold the folder."""
    for each in list(_claims):
        held = each._folder
        if held is not None and each._pid == os.getpid() and os.path.sameopenfile(held.fd, folder.fd):
            yield each


@contextlib.contextmanager
def _alone(dump_path: Path) -> Iterator[None]:
    """Keep other processes from taking folders of the dump meanwhile."""
    with Folder(dump_path) as folder:
        _wait_for(folder.fd)
        yield


@contextlib.contextmanager
def held_report(directory: Path) -> Iterator[None]:
    """Keep others from changing the report of a step that has ended, and from removing the step (spec/report.md)."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            fd = os.open(directory / DUMP, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            _wait_for(fd)
        yield


def _wait_for(fd: int) -> None:
    """Wait for a lock: whoever holds it needs a moment, unless it was stopped meanwhile."""
    for _ in range(100):
        if locked(fd):
            break
        time.sleep(0.01)


def _in_forked_child() -> None:  # its copies would hold the parent's folders for as long as it lives
    global _lock
    _lock = threading.RLock()
    for each in list(_claims):
        each.release()


os.register_at_fork(after_in_child=_in_forked_child)
