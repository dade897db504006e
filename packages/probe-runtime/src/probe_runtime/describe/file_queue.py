"""Write tensor files in a thread while the run goes on, in bounded memory (`async_dump`)."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from probe_format.tensors import write_parts

__all__ = ["FileQueue", "WriteFile", "link_or_copy"]

Parts = Callable[[], Sequence[bytes | memoryview]]
#: Takes a path and the pieces of a file, and makes the file; returns its size.
WriteFile = Callable[[str, Sequence[bytes | memoryview]], int]


class FileQueue:
    """One thread that writes files in order. ``put`` waits while more than ``bound`` bytes are queued."""

    def __init__(
        self,
        bound: int,
        done: Callable[[list[int]], None],
        failed: Callable[[Path, Exception], None],
        write: WriteFile = write_parts,
    ):
        """Start the thread.

        bound: how many bytes may wait.
        done: called with the refs whose files are complete.
        failed: called with a file that could not be written, and the error.
        write: makes a file.
        """
        self._bound = bound
        self._done = done
        self._failed = failed
        self._write = write
        self._jobs: deque[tuple[int, Path, Parts | Path, int]] = deque()
        self._held = 0
        self._busy = False
        self._closing = False
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="probe-files", daemon=True)
        self._thread.start()

    def put(self, ref: int, path: Path, parts: Parts, nbytes: int) -> None:
        """Queue a file of ``nbytes`` bytes; ``parts`` is called in the thread. Blocks while the queue is full."""
        self._push(ref, path, parts, nbytes)

    def link(self, ref: int, path: Path, source: Path) -> None:
        """Queue ``path`` as a second name of the file ``source``, which was queued before."""
        self._push(ref, path, source, 0)

    def _push(self, ref: int, path: Path, job: Parts | Path, nbytes: int) -> None:
        with self._lock:
            while self._held > 0 and self._held + nbytes > self._bound and not self._closing:
                self._lock.wait()
            if self._closing:
                raise RuntimeError(f"{path} came after the queue was closed")
            self._held += nbytes
            self._jobs.append((ref, path, job, nbytes))
            self._lock.notify_all()

    def flush(self) -> None:
        """Wait until every queued file is written."""
        if os.getpid() != self._pid:  # a fork()ed child has a copy of the queue, but not its thread
            return
        with self._lock:
            while self._jobs or self._busy:
                self._lock.wait()

    def close(self) -> None:
        """Write what is queued and end the thread."""
        if os.getpid() != self._pid:
            return
        self.flush()
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._jobs:
                    if self._closing:
                        return
                    self._lock.wait()
                ref, path, job, nbytes = self._jobs.popleft()
                self._busy = True
            try:
                if isinstance(job, Path):
                    link_or_copy(job, path)
                else:
                    self._write(str(path), job())
                self._done([ref])
            except Exception as e:
                with contextlib.suppress(Exception):  # the thread must live, or flush() waits for ever
                    self._failed(path, e)
            del job  # holds the tensor
            with self._lock:
                self._held -= nbytes
                self._busy = False
                self._lock.notify_all()


def link_or_copy(source: Path | str, target: Path | str) -> None:
    """Give ``source`` a second name; a copy where the file system has no hard links. Replaces ``target``."""
    if str(source) == str(target):
        return
    try:
        try:
            os.link(source, target)
        except FileExistsError:
            os.unlink(target)
            os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        with open(source, "rb") as f:
            write_parts(target, [f.read()])
