"""Run a function on each part of a dump, and unite the results to one: in this process, in several, or on Dask.

A plan is a function of one part, and a function that unites two results, in whatever order and grouping. An engine
runs the first on each part, and the second until one result is left. Scheduling is left to Python and Dask.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import partial, reduce
from itertools import islice
from multiprocessing import get_context, parent_process
from typing import Any, Protocol, TypeVar

from probe_format.errors import ProbeError, UsageError
from probe_format.excerpts import error_text

T = TypeVar("T")
R = TypeVar("R")
#: Called with how many parts are done, and how many there are.
Done = Callable[[int, int], None]


class Engine(Protocol):
    """Run a plan. work: makes the result of a part. unite: makes one result of two. There is at least one part."""

    def __call__(
        self, work: Callable[[T], R], parts: Iterable[T], unite: Callable[[R, R], R], done: Done | None = None
    ) -> R: ...


def in_process(
    work: Callable[[T], R], parts: Iterable[T], unite: Callable[[R, R], R], done: Done | None = None
) -> R:
    """Run a plan here, one part after the other."""
    every = [*parts]
    return reduce(unite, _told(map(work, every), len(every), done))


def _told(results: Iterable[R], total: int, done: Done | None) -> Iterator[R]:
    for n, result in enumerate(results):
        yield result
        if done is not None:
            done(n + 1, total)


def in_processes(workers: int, *, forked: bool = False) -> Engine:
    """Return an engine of so many processes on this machine. It raises ProbeError where one of them is killed.

    forked: whether they may begin as copies of this process, which saves each the 0.35 s that Python, numpy and this
    package take to start. They do where Python knows of no thread but this one: a copy has the locks that others
    held, for good. Not for a process with threads that Python does not know of, but numpy's, which stop for it.
    """

    def run(work: Any, parts: Any, unite: Any, done: Done | None = None) -> Any:
        each = [*shares([*parts], workers)]
        some = partial(in_process, work, unite=unite)
        how = get_context("fork" if forked and threading.active_count() == 1 else "spawn")
        with ProcessPoolExecutor(min(workers, len(each)), how, _end_at_once) as pool:
            # All begin at once, before Python's thread that watches them: it fails where one is added as another is
            # killed, and no copy may be made beside it.
            pool._safe_to_dynamically_spawn_children = False  # type: ignore[attr-defined]
            try:
                return reduce(unite, _told(_as_completed(pool, some, each), len(each), done))
            except BaseException as error:  # such as Ctrl-C: what they still do is of no use
                for process in [*(pool._processes or {}).values()]:
                    process.kill()  # as SIGTERM may be ignored
                # Where one was killed, any error may come of it, as of a pipe that is closed by then.
                if not (isinstance(error, Exception) and pool._broken):
                    raise
                time.sleep(0.2)  # Ctrl-C ends these processes too, and is heard here then
                why = "One of the processes that read the ranks was killed, as where the memory is used up"
                raise ProbeError(f"{why}. Give fewer workers: each takes its own.") from error

    return run


#: How many parts a process unites at most.
_TOGETHER = 8


def shares(parts: Sequence[T], workers: int) -> Iterator[Sequence[T]]:
    """Yield shares of the parts: one process works on each share, and returns one result for it.

    Shares become smaller as fewer parts are left, so that at the end no process is waited for long.
    """
    left, workers = parts, min(workers, len(parts))
    while left:
        size = max(1, min(_TOGETHER, round(3 * len(left) / (4 * workers))))
        for _ in range(workers):
            if left:
                yield left[:size]
            left = left[size:]


def _as_completed(pool: ProcessPoolExecutor, work: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
    """Yield the results as they come, with few of them waiting in memory."""
    left = iter(parts)

    def submit(most: int) -> set[Future[R]]:
        with _ctrl_c_later():
            return {pool.submit(work, part) for part in islice(left, most)}

    running = submit(2 * pool._max_workers)  # type: ignore[attr-defined]
    while running:
        ended, running = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            running |= submit(1)
            yield future.result()


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block; in a process that is started in it, until `_end_at_once` has run there.

    A process that is still starting would print a traceback. To block the signal here is not enough: the system gives
    it to any thread, as those of numpy's BLAS, and Python's main thread hears of it.
    """
    heard: list[Any] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = signal.getsignal(signal.SIGINT)
    waits = callable(handler) and threading.current_thread() is threading.main_thread()
    if waits:
        signal.signal(signal.SIGINT, lambda *about: heard.append(about))
    try:
        yield
    finally:
        if waits:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if heard and callable(handler):
        handler(*heard[0])


def _end_at_once() -> None:
    """Let this process end without a word at Ctrl-C, and when its parent ends: the parent says what is to be said.

    What the parent ignores, as a background job of a script does Ctrl-C, is ignored here too.
    """
    threading.Thread(target=_outlive_nobody, daemon=True).start()
    for each in (signal.SIGINT, signal.SIGTERM):  # a forked process has its parent's handlers
        if signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _outlive_nobody() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def on_dask(scheduler: str) -> Engine:
    """Return an engine of the workers of a Dask scheduler, which repeats the work of workers that are lost.

    Raises UsageError where dask.distributed is not installed, and for an invalid address. The engine raises
    ProbeError where Dask fails.
    """
    try:
        from distributed import Client  # type: ignore[import-not-found, unused-ignore]
        from distributed.comm import resolve_address  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        how = "Install it with: pip install 'probe-analysis[dask]'."
        raise UsageError(f"Dask is not installed here. {how}") from None
    try:
        resolve_address(scheduler)
    except (ValueError, OSError) as error:
        why = f"{scheduler!r} is no address of a scheduler, as tcp://host:8786: {error}."
        raise UsageError(why) from None

    def run(work: Any, parts: Any, unite: Any, done: Done | None = None) -> Any:
        with _failing(scheduler), Client(scheduler, set_as_default=False) as client:
            left = client.map(work, [*parts], pure=False)
            while len(left) > 1:  # a tree, whose nodes are tasks: a result moves to the worker of its partner
                pairs = zip(left[::2], left[1::2], strict=False)
                united = [client.submit(unite, *pair, pure=False) for pair in pairs]
                left = united + left[2 * len(united) :]
            return left[0].result()

    return run


@contextmanager
def _failing(scheduler: str) -> Iterator[None]:
    """Raise what Dask fails with, which is an error of any kind, as ProbeError."""
    try:
        yield
    except (ProbeError, MemoryError):
        raise
    except Exception as error:
        what = "Its workers need this version of probe-analysis, and memory for a block of ranks each"
        raise ProbeError(f"Dask at {scheduler} gives no answer: {error_text(error)}. {what}.") from error
