"""Write and read the append-only log of events that makes a killed run readable (spec/journal.md).

Each event is one frame and one write(2), without fsync: what was written survives the death of the process
(not of the machine). A frame is u32 length, u32 CRC-32 of the payload (both little-endian), payload.
"""

from __future__ import annotations

import errno
import os
import threading
import zlib
from itertools import accumulate, repeat
from operator import add
from pathlib import Path
from typing import Any, Literal

from attrs import define, frozen

from probe_format import jsonio
from probe_format.errors import FormatError
from probe_format.safe_files import FILE_MODE

from .events import Event
from .read_back import HEAD as _HEAD
from .read_back import ReadBack

__all__ = ["MAGIC", "Count", "JournalContents", "JournalWriter", "read_journal"]

MAGIC = b"PROBEJ1\n"
_MAX_FRAME = 1 << 30
#: How many bytes of events are kept in memory until the files are written, at most.
KEPT = 4 << 20


@define
class Count:
    """Count events that are in a journal: it is raised under the lock that orders them."""

    n: int = 0


class JournalWriter:
    """Append events to one file. Safe from many threads and processes: a frame is one O_APPEND write.

    lock: held while an event is written, so that whoever holds it sees every event whole and no later one.
    """

    def __init__(self, path: Path, lock: threading.RLock | None = None) -> None:
        """Open ``path`` for appending, creating it with its header. Raises OSError when it cannot."""
        self.path = path
        self.lock = lock or threading.RLock()
        self._fd = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE
        )
        self._pid = os.getpid()
        start = os.fstat(self._fd).st_size or os.write(self._fd, MAGIC)
        # The events that were written since `take_recent`, and where the first of them is in the file.
        self._kept: list[bytes] = []
        self._kept_from, self._room = start, KEPT

    def append(self, event: Event, count: Count | None = None) -> None:
        """Write one event. When this returns, the event survives SIGKILL. Raises OSError when it cannot.

        count: raised by one together with the event. After `close` nothing is written or counted.
        """
        if type(event) is not bytes:
            event = jsonio.dumps(event)
        size = len(event)
        if size > _MAX_FRAME:
            raise OSError(errno.EFBIG, f"an event of {size} bytes is too large", str(self.path))
        frame = _HEAD.pack(size, zlib.crc32(event)) + event
        with self.lock:
            if self._fd < 0:
                return
            done = os.write(self._fd, frame)
            if done != size + _HEAD.size:
                self._complete(frame, done)
            if size < self._room:
                self._room -= size
                self._kept += (event,)
            else:  # later ones that would fit are not next to the kept ones
                self._kept, self._room = [], 0
            if count is not None:
                count.n += 1

    def _complete(self, frame: bytes, done: int) -> None:
        """Write the rest after a short write (full disk, limit reached), or truncate the frame's part."""
        start = os.fstat(self._fd).st_size - done
        try:
            while done < len(frame):
                done += os.write(self._fd, frame[done:])
        except OSError:
            os.ftruncate(self._fd, start)  # half a frame would make every later one hard to find
            raise

    def read_back(self) -> ReadBack:
        """Return a reader of what is written so far."""
        return ReadBack(self._fd, self.path)

    def take_recent(self) -> tuple[list[int], list[bytes], int]:
        """Return the events since the last call, so that they need not be read back, as `ReadBack.events` does.

        Nothing when they are too many to be kept, or when the file does not end with them.
        """
        with self.lock:
            events, self._kept = self._kept, []
            start, self._kept_from, room, self._room = self._kept_from, self.size, self._room, KEPT
        *places, end = accumulate(map(add, map(len, events), repeat(_HEAD.size)), initial=start)
        return (places, events, end) if room and end == self._kept_from else ([], [], end)

    @property
    def size(self) -> int:
        """Return the size of the file now, in bytes."""
        return os.fstat(self._fd).st_size

    @property
    def forked(self) -> bool:
        """Return whether this is a fork()'s copy: the child must not write into the parent's journal."""
        return os.getpid() != self._pid

    def close(self) -> None:
        """Close the file; more calls do nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


@frozen
class JournalContents:
    """Hold everything readable in a journal.

    state: ``whole``; ``torn`` (the last frame is cut short, normal after a kill); ``damaged`` (a frame in
    the middle does not match its checksum; the events after it, if found, are included).
    """

    events: tuple[dict[str, Any], ...]
    state: Literal["whole", "torn", "damaged"]
    valid_bytes: int
    file_bytes: int
    detail: str = ""


def read_journal(path: Path) -> JournalContents:
    """Read every intact event of ``path``.

    Raises FormatError when it is not a journal, OSError when it cannot be read.
    """
    data = path.read_bytes()
    events: list[dict[str, Any]] = []
    at, end = len(MAGIC), len(data)
    frames = _Frames(data)
    damage: list[str] = []
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):  # killed between open and the first write
            return JournalContents((), "torn", 0, len(data), "the header itself is cut short")
        if frames.at(at)[0] is None:
            raise FormatError(f"{path} is not a Probe journal (it does not start with {MAGIC!r}).")
        damage.append("the header is not what it should be")
    while at < end:
        event, after, why = frames.at(at)
        if event is not None:
            events.append(event)
            at = after
            continue
        following = frames.after(at + 1)
        if following is None:
            if why == "cut short" and not damage and not _wrong_length(data, at):
                return JournalContents(
                    tuple(events), "torn", at, end, f"{end - at} bytes after the last event"
                )
            damage.append(f"{why} at byte {at}; nothing readable after it")
            break
        damage.append(f"{why} at byte {at}; reading goes on at byte {following}")
        at = following
    if damage:
        if len(damage) > _MOST_TOLD:
            damage[_MOST_TOLD:-1] = [f"... and {len(damage) - _MOST_TOLD - 1} more places"]
        return JournalContents(tuple(events), "damaged", min(at, end), end, "; ".join(damage))
    return JournalContents(tuple(events), "whole", end, end)


_MOST_TOLD = 10
#: Limit in bytes on checking false frames: each of them could otherwise cost a read of the whole file.
_VAIN_FLOOR, _VAIN_TIMES = 1 << 26, 4


class _Frames:
    """Find the frames in a journal's bytes, in time that is linear in the number of bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._view = memoryview(data)
        self._left = _VAIN_FLOOR + _VAIN_TIMES * len(data)

    def at(self, at: int) -> tuple[dict[str, Any] | None, int, str]:
        """Return the event of the frame at ``at`` and where it ends; None and why without an intact frame."""
        data = self._data
        if at + _HEAD.size > len(data):
            return None, at, "cut short"
        length, crc = _HEAD.unpack_from(data, at)
        stop = at + _HEAD.size + length
        if length > _MAX_FRAME or stop > len(data):
            return None, at, "cut short"
        if length > self._left:
            return None, at, "too much damage to be looked through"
        payload = self._view[at + _HEAD.size : stop]
        if zlib.crc32(payload) != crc:
            self._left -= length
            return None, at, "checksum differs"
        try:
            event = jsonio.loads(payload.tobytes())
        except ValueError:
            event = None
        if event is None or not isinstance(event, dict) or not isinstance(event.get("k"), str):
            self._left -= length
            return None, at, "not an event"
        return event, stop, ""

    def after(self, at: int) -> int | None:
        """Return the start of the next intact frame at or after ``at``: frames hold objects that begin ``{"k":``."""
        probe = b'{"k":'
        found = self._data.find(probe, at + _HEAD.size)
        while found >= 0:
            start = found - _HEAD.size
            if start >= at and self.at(start)[0] is not None:
                return start
            found = self._data.find(probe, found + 1)
        return None


def _wrong_length(data: bytes, at: int) -> bool:
    """Return whether the last frame is complete and only its length field is wrong."""
    payload = data[at + _HEAD.size :]
    return bool(payload) and zlib.crc32(payload) == _HEAD.unpack_from(data, at)[1]
