"""Write tensor files in a second thread: while the run goes on (key `async_dump`), or as numbers are computed."""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar


class FileQueue:
    """One thread that writes files in order. ``put`` waits while more than ``bound`` bytes are queued."""

    def __init__(self, bound: int) -> None:
        """Start the thread. bound: how many bytes may wait."""
        self._bound = bound
        self._jobs: deque[tuple[Callable[[], None], int]] = deque()
        self._held = 0
        self._closing = False
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="probe-files", daemon=True)
        self._thread.start()

    def put(self, write: Callable[[], None], nbytes: int) -> None:
        """Queue what writes a file and holds ``nbytes`` bytes for it. Blocks while the queue is full."""
        with self._lock:
            while self._held > 0 and self._held + nbytes > self._bound and not self._closing:
                self._lock.wait()
            if self._closing:
                raise RuntimeError("a file came after the queue was closed")
            self._held += nbytes
            self._jobs.append((write, nbytes))
            self._lock.notify_all()

    def flush(self) -> None:
        """Wait until every queued file is written."""
        if os.getpid() != self._pid:  # a fork()ed child has a copy of the queue, but not its thread
            return
        with self._lock:
            while self._jobs:
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
                write, nbytes = self._jobs[0]  # it stays there until it is written, for flush()
            with contextlib.suppress(Exception):  # the thread must live, or flush() waits for ever
                write()
            del write  # holds the content
            with self._lock:
                self._jobs.popleft()
                self._held -= nbytes
                self._lock.notify_all()


A = TypeVar("A")
B = TypeVar("B")

#: Size in bytes from which a second thread saves more time than its start costs.
LARGE = 4 << 20


def run_both(here: Callable[[], A], there: Callable[[], B]) -> tuple[A, B]:
    """Call both and return both results; ``there`` runs in another thread. Raises what either raised."""
    results: list[B] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(there())
        except BaseException as error:
            errors.append(error)

    # Not a ThreadPoolExecutor: it takes no work once the interpreter has begun to exit, when atexit functions save.
    thread = threading.Thread(target=run, name="probe-file")
    thread.start()
    try:
        mine = here()
    finally:
        thread.join()
    if errors:
        raise errors[0]
    return mine, results[0]
