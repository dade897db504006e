"""A second pair of hands for large tensor files: the bytes go out while the caller computes on them.

Nothing is put off: the caller waits for the write before it goes on, so that the tensor cannot change under it
and a file is complete before its record is written. On one core, or while the hands are busy, there is none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from .ptfile import Buffer, pt_frame, pt_head_size

__all__ = ["WORTH", "Halfway", "Hands"]

#: Bytes. Below it, waking the other thread costs more than it saves (bench).
WORTH = 1 << 19


class Hands:
    """One waiting thread that does one job at a time. Ends with `close`; a forked child has none."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._free = threading.Lock()
        self._given = threading.Semaphore(0)
        self._done = threading.Semaphore(0)
        self._job: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def take(self, job: Callable[[], None]) -> bool:
        """Begin ``job``; False when that is not possible now. Each True wants a `wait`."""
        if os.getpid() != self._pid or not self._free.acquire(blocking=False):
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="probe-hands", daemon=True)
            self._thread.start()
        self._job = job
        self._given.release()
        return True

    def wait(self) -> None:
        """Until the job is done. Raises what it raised."""
        self._done.acquire()
        error, self._error = self._error, None
        self._free.release()
        if error is not None:
            raise error

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None and os.getpid() == self._pid:
            self._free.acquire()
            self._job = None
            self._given.release()
            self._thread.join()
            self._thread = None
            self._free.release()

    def _work(self) -> None:
        while True:
            self._given.acquire()
            job, self._job = self._job, None
            if job is None:
                return
            try:
                job()
            except BaseException as e:
                self._error = e
            del job
            self._done.release()


class Halfway:
    """A ``.pt`` file whose content is being written; `finish` adds what stands around it."""

    def __init__(self, hands: Hands, path: Path, dtype: str, shape: tuple[int, ...], data: Buffer) -> None:
        """Create ``path`` anew and begin. Raises OSError. dtype, shape, data: as for `ptfile.pt_bytes`."""
        self._path, self._dtype, self._shape, self._data = path, dtype, shape, data
        self._at = pt_head_size(dtype, shape, len(data))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o644)
        except FileExistsError:
            os.unlink(path)  # not truncated: other names may be linked to the old content
            self._fd = os.open(path, flags, 0o644)
        self._hands = hands if hands.take(self._write) else None

    def _write(self) -> None:
        _write_at(self._fd, self._data, self._at)

    def finish(self, crc: int) -> None:
        """The file is complete when this returns. Raises OSError; then there is no file. crc: CRC-32 of the data."""
        try:
            if self._hands is None:
                self._write()
            else:
                hands, self._hands = self._hands, None
                hands.wait()
            head, tail = pt_frame(self._dtype, self._shape, len(self._data), crc)
            _write_at(self._fd, tail, self._at + len(self._data))
            _write_at(self._fd, head, 0)
        except OSError:
            os.unlink(self._path)
            raise
        finally:
            os.close(self._fd)

    def give_up(self) -> None:
        """Something went wrong meanwhile: there is no file."""
        try:
            if self._hands is not None:
                self._hands.wait()
        finally:
            os.close(self._fd)
            os.unlink(self._path)


def _write_at(fd: int, data: Buffer, at: int) -> None:
    done = os.pwrite(fd, data, at)
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], at + done)
