"""Append events to the journal, the file that makes a killed run readable (spec/journal.md).

Each event is one frame and one write(2), without fsync: what was written survives the death of the process
(not of the machine). A frame is u32 length, u32 CRC-32 of the payload (both little-endian), payload.

Promise: a killed run loses nothing. Never is an event kept back in memory once it was acknowledged, nor one that
was written changed. Held by tests/torch/test_kill.py, tests/mindspore/test_kill.py, tests/save/test_kill.py.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from attrs import define

from probe_format import jsonio
from probe_format.checksum import crc32
from probe_format.excerpts import unsignalled
from probe_format.safe_files import FILE_MODE, Descriptor, Folder

from .events import Event
from .events import head as begun
from .places import FRAME, Places

MAGIC = b"PROBEJ2\n"
MAX_FRAME = 1 << 30
_MOST = 1 << 63

Taken = Callable[[Event, int, int], None]
Refused = Callable[[OSError], None]
Grown = Callable[[int], int]


@define
class Count:
    """Count the events in a journal: the writer raises ``n`` while it holds the lock under which it writes."""

    n: int = 0


class JournalWriter:
    """Append events to one file. Safe from many threads and processes: a frame is one O_APPEND write.

    lock: held while an event is written: who holds it sees whole events only, and none is added meanwhile.
    end: the offset at which the last event ends that this writer wrote.
    ended: whether this process is to write nothing more; then not even the lock is taken.
    refused: takes the error of an event that cannot be written; where ``refused`` is None the error is raised.
    grown: called before the file grows beyond ``mark``: takes the size to come, and returns the next mark. Raises
        OSError when the file must not grow.
    """

    def __init__(
        self,
        path: Path,
        taken: Taken,
        lock: threading.RLock | None = None,
        folder: Folder | None = None,
        magic: bytes = MAGIC,
    ) -> None:
        """Open ``path`` for appending, creating it with its header.

        folder: the folder of ``path``, where it is open already.
        taken: called with each event once it is written, the offset of its frame, and the size of its payload.
        magic: the bytes that the file begins with.

        Raises OSError when the file cannot be opened; a file that was made without its whole header is removed.
        """
        self.path = path
        self.lock = lock or threading.RLock()
        self._taken = taken
        self.end = 0
        self._folder = folder or Folder(path.parent)
        self._file = Descriptor(self._open)
        self._pid = os.getpid()
        self.ended = False
        self.refused: Refused | None = None
        self.grown: Grown = lambda size: _MOST
        self.mark = _MOST
        self.end = self.size
        if not self.end:
            try:
                self._complete(magic, os.write(self._file.fd, magic))
                self.end = len(magic)
            except OSError:
                self.close()
                self._folder.remove(path.name)
                raise

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if self.end else os.O_CREAT)
        return os.open(self.path.name, flags, FILE_MODE, dir_fd=self._folder.fd)

    def append(self, event: Event, count: Count | None = None) -> None:
        """Write one event. When this returns, the event survives SIGKILL. Raises OSError when it cannot.

        count: raised by one together with the event. After `close` nothing is written or counted.
        """
        if self.ended:
            return
        head, values = event
        try:
            text = jsonio.encode(head)
        except TypeError:  # a name that is no UTF-8
            text = jsonio.dumps(head)
        payload = b"\n".join((text, *values))
        size = len(payload)
        try:
            if size > MAX_FRAME:
                raise OSError(errno.EFBIG, f"an event of {size} bytes is too large", str(self.path))
            frame = FRAME.pack(size, crc32(payload)) + payload
            with self.lock:
                file, at = self._file, self.end
                fd = file.number
                try:  # each event of ours leaves the file's position at the end
                    fd = fd if os.lseek(fd, 0, os.SEEK_CUR) == at else file.fd
                except unsignalled(OSError):  # somebody has closed it
                    fd = file.fd
                if at + size > self.mark:
                    self.mark = self.grown(at + size)
                done = os.write(fd, frame)
                whole = size + FRAME.size
                if done != whole:
                    self._complete(frame, done)
                self.end = at + whole
                if count is not None:
                    count.n += 1
                self._taken(event, at, size)
        except unsignalled(OSError) as e:
            self._failed(event, e)

    def _failed(self, event: Event, error: OSError) -> None:
        """Hand on the error of an event that was not written. Raises it where nobody takes it."""
        if self._file.closed:
            return
        if event[0]["k"] == "fault" and self._in_room(event):
            return
        if self.refused is None:
            raise error
        self.refused(error)

    def _in_room(self, event: Event) -> bool:
        """Write a fault over the blanks that the first event has for it; return False where that cannot be done."""
        at = len(MAGIC)
        try:
            with self.lock:
                fd = self._file.fd
                size, _ = FRAME.unpack(os.pread(fd, FRAME.size, at))
                head = jsonio.loads(os.pread(fd, size, at + FRAME.size))
                text, told = jsonio.dumps(begun(head["header"])[0]), jsonio.dumps(event[0])
                left = size - len(text) - FRAME.size
                if "room" not in head or len(told) > left:
                    return False
                # What is open for appending is written at its end alone.
                fcntl.fcntl(fd, fcntl.F_SETFL, os.O_RDWR)
                try:
                    os.pwrite(fd, _framed(text) + _framed(told.ljust(left)), at)
                finally:
                    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_RDWR | os.O_APPEND)
                self._taken(event, at, left)
            return True
        except (OSError, ValueError, LookupError, struct.error):  # there is another one's journal, or none
            return False

    def _complete(self, data: bytes, done: int) -> None:
        """Write the rest after a short write (full disk, limit reached), or take back what was written of it."""
        start = self.size - done
        try:
            while done < len(data):
                done += os.write(self._file.fd, data[done:])
        except OSError:
            os.ftruncate(self._file.fd, start)  # a part of a frame would make every later one hard to find
            raise

    def places(self) -> Places:
        """Return what finds values in the file as it is now."""
        return Places(self._file.fd, self.path)

    @property
    def descriptor(self) -> int:
        """Return the number of the open file."""
        return self._file.fd

    @property
    def size(self) -> int:
        return os.fstat(self._file.fd).st_size

    @property
    def forked(self) -> bool:
        """Return whether this is a fork()'s copy: the child must not write into the parent's journal."""
        return os.getpid() != self._pid

    def close(self) -> None:
        """Close the file; more calls do nothing."""
        self._file.close()


def _framed(payload: bytes) -> bytes:
    return FRAME.pack(len(payload), crc32(payload)) + payload
