"""Keep what a process writes within two limits: on the bytes of the run's dump, and on those left free on the disk.

The configuration gives them as `max_bytes` and `min_free_bytes` (spec/config.md). Where one comes near, tensors get
no files; then the oldest steps are removed, if the run keeps only its last ones; then nothing more is recorded.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import define, field
from probe_format.layout import SMALLEST_TABLES
from probe_format.safe_files import Folder
from probe_format.tensors import byte_count
from probe_format.write import NoRoom

from probe_runtime.config import Config
from probe_runtime.notice import Notices

from .ring import Ring

Buffer = bytes | memoryview
WriteFile = Callable[[str, Sequence[Buffer], Folder], int]

_BLOCK = 4096
#: What a step's folder and its smallest files take.
_CLOSING = 8 * _BLOCK
#: At its end a step has its journal, and the documents of stop() and step(), which are about as large.
_COPIES = 3
#: The first step's journal is taken to become this many times as long as it is, as nobody knows its length yet.
_AHEAD = 4
#: The part of a limit that tensor files leave to the numbers of later steps.
_NEAR = 8
_MOST = 1 << 20
_NUMBERS_ALONE = "records have their numbers alone, as with task statistics"


@define
class Budget:
    """The bytes that a process may have below a dump path. What ends a step early, or keeps it small, is said once.

    config: the configuration of the steps to come, with the limits.
    processes: returns how many processes write there.
    ring: the steps that stay; None where all do.
    written: the bytes of the steps that have ended and still exist.
    is_over: whether the last step ended early, or was not begun, for want of room.
    """

    config: Config
    processes: Callable[[], int]
    ring: Ring | None = None
    written: int = 0
    is_over: bool = False
    _share: int = 0
    _numbers: int = 0
    _files: int = 0
    _sizes: dict[tuple[Path, ...], int] = field(factory=dict)
    _notices: Notices = field(factory=Notices)

    def take(self, config: Config) -> None:
        """Go by a configuration from the next step on."""
        self.config = config
        if config.keep is None:
            self.ring = None
        elif self.ring is None:
            self.ring = Ring(config.keep.last)
        else:
            self.ring.last = config.keep.last

    @property
    def tables(self) -> int:
        """Return the bytes that a step's tables count as where its JSON files have less; 0 without tables."""
        return 0 if self.config.tables is None else SMALLEST_TABLES

    def begin(self) -> Allowance | None:
        """Return what the step that begins may write; None if that is nothing, as an earlier step has told."""
        step = Allowance(self)
        self._share = (self.config.max_bytes or 0) // max(1, self.processes())
        need = _COPIES * self._numbers + _CLOSING + self.tables
        left, why = self.make_room(need, step)
        if left < need:
            step.over = f"{why}, so nothing is recorded until there is room"
            if self.is_over:
                return None
            self.is_over = True
            return step
        self.is_over = False
        left, why = self.left(0, near=True)
        if self.config.wants_files and left < self._files + need:
            step.end_files(why, "all")
        return step

    def make_room(self, need: int, step: Allowance) -> tuple[int, str]:
        """Have the ring remove steps until there is room for ``need`` bytes; none if removing all is not enough.

        step: the step that is open, or begins.

        Returns what `left` then returns.
        """
        left, why = found = self.left(step.taken)
        folders = set() if self.ring is None else self.ring.folders
        if left + sum(size for each, size in self._sizes.items() if folders.intersection(each)) < need:
            return found
        while left < need and self.ring is not None and (removed := self.ring.shrink()) is not None:
            step.notes[removed.parent.name] = f"removed before its time: {why}"
            self._notices.tell(f"{why}. Until there is room, fewer steps stay than keep asks for.", "ring")
            self.settle()
            left, why = found = self.left(step.taken)
        return found

    def left(self, taken: int, *, near: bool = False) -> tuple[int, str]:
        """Return how many bytes can still be written, and the key that sets the limit, in words.

        taken: the bytes of the step that is open.
        near: whether the last part of each limit (1 / ``_NEAR``) stays free.
        """
        found, most, wanted = [(1 << 62, "")], self.config.max_bytes, self.config.min_free_bytes
        if most is not None:
            share, so_far = self._share, self.written + taken
            of_all = "" if share == most else f", this process's part of {most:,}"
            words = f"max_bytes: {so_far:,} of {share:,} bytes are written{of_all}"
            found.append((share - so_far - near * share // _NEAR, words))
        if wanted is not None:
            free = free_bytes(self.config.dump_path)
            words = f"min_free_bytes: {free:,} bytes are free, and {wanted:,} are to stay free"
            found.append((free - wanted - near * wanted // _NEAR, words))
        return min(found)

    def ended(self, step: Allowance, directories: tuple[Path, ...]) -> None:
        """Take a step that has ended, before the ring does. directories: its rank folders."""
        documents = [*map(_size_without_tensors, directories)]
        size = step.files + sum(documents)
        self.written += size + sum(max(each, self.tables) for each in documents if self.tables)
        self._numbers = max(self._numbers, step.numbers)
        if not step.is_small:
            self._files = step.files + step.refused
        if self.ring is not None and directories:
            self._sizes[directories] = size

    def settle(self) -> None:
        """Take note of the steps that a ring has removed."""
        for directories in [each for each in self._sizes if not any(map(os.path.lexists, each))]:
            self.written -= self._sizes.pop(directories)

    def needs(self, numbers: int) -> int:
        """Return how many bytes a step may still need for its numbers. numbers: bytes of its journal."""
        whole = max(numbers, self._numbers or _AHEAD * numbers)
        return _COPIES * whole - numbers + _CLOSING + self.tables

    def end_files(self, why: str) -> None:
        """Say once that tensors have no files for now."""
        self._notices.tell(f"{why}. Until there is room, {_NUMBERS_ALONE}.", "files")


@define
class Allowance:
    """What one step may write. Safe to use from many threads.

    budget: the budget that the allowance is a part of.
    files: the bytes of the step's tensor files so far.
    refused: the bytes of the first file that was refused.
    is_small: whether the step has no files from its beginning on.
    over: why nothing of the step is recorded; empty where it is recorded.
    is_told: whether one of the step's parts has told ``over``.
    notes: what is not in the step's dump, and why.
    no_more_files: called when there is no room for files any more.
    """

    budget: Budget
    files: int = 0
    refused: int = 0
    is_small: bool = False
    over: str = ""
    is_told: bool = False
    notes: dict[str, str] = field(factory=dict)
    no_more_files: list[Callable[[], None]] = field(factory=list)
    _journals: list[Callable[[], int]] = field(factory=list)
    _lock: threading.RLock = field(factory=threading.RLock)

    @property
    def numbers(self) -> int:
        """Return the bytes of the step's journals so far."""
        return sum(size() for size in self._journals)

    @property
    def taken(self) -> int:
        """Return the bytes of the step so far."""
        return self.files + self.numbers

    def add_journal(self, size: Callable[[], int]) -> Callable[[int], int]:
        """Take a journal of the step, and return a function to call when the journal grows.

        size: returns the journal's bytes.

        The function takes the journal's size, returns the size at which to call it again, and raises NoRoom.
        """
        self._journals.append(size)
        return self._grown

    def _grown(self, size: int) -> int:
        with self._lock:
            owed = (_COPIES - 1) * self.numbers + _CLOSING + self.budget.tables
            left, why = self.budget.make_room(owed, self)
            if left < owed:
                self.budget.is_over = True
                raise NoRoom(f"{why}, so nothing more is recorded until there is room")
            return size + min(_MOST, max(_BLOCK, (left - owed) // (2 * _COPIES)))

    def within(self, write: WriteFile, block: int = _BLOCK) -> WriteFile:
        """Return a function that writes a tensor file as ``write`` does, or raises NoRoom.

        block: a file takes a multiple of so many bytes.
        """

        def written(name: str, parts: Sequence[Buffer], folder: Folder) -> int:
            size = in_blocks(byte_count(parts), block)
            with self._lock:
                left, why = self.budget.left(self.taken, near=True)
                if left < size + self.budget.needs(self.numbers):
                    if not self.refused:
                        self.refused = size
                        self.end_files(why, f"from {name} on")
                    raise NoRoom(why)
                self.files += size
            return write(name, parts, folder)

        return written

    def end_files(self, why: str, which: str) -> None:
        """Let tensors have no more files in this step. which: the tensors without, in words."""
        self.is_small = which == "all"
        self.notes["tensor files"] = f"{which}: {why}; {_NUMBERS_ALONE}"
        self.budget.end_files(why)
        for end in self.no_more_files:
            end()


def in_blocks(size: int, block: int = _BLOCK) -> int:
    """Return the bytes that a file of this size takes on a disk with blocks of 4 KiB, or of another size."""
    return -(-size // block) * block


def _size_without_tensors(directory: Path) -> int:
    """Return the bytes that a rank's folder takes with all its files but those of tensors."""
    size = 2 * _BLOCK
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        size += sum(in_blocks(each.stat(follow_symlinks=False).st_size) for each in entries)
    return size


def free_bytes(path: Path) -> int:
    """Return how many bytes are free where a folder is, or is to be. Raises OSError where nobody knows."""
    try:
        state = os.statvfs(path)
    except (FileNotFoundError, NotADirectoryError):  # it is not there yet, or somebody has removed it
        return free_bytes(path.parent)
    return state.f_bavail * state.f_frsize
