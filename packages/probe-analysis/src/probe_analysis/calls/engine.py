"""Work through the parts of a dump, and unite what comes of them: in this process, in several, or on Dask.

A plan is a function of one part and another that unites two results, whose order and grouping do not matter; an engine
is what runs the one on each part, and the other until one result is left. None of them is written here: there is no
scheduler of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial, reduce
from itertools import islice
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from probe_format.errors import ProbeError, UsageError

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


def in_processes(workers: int) -> Engine:
    """Return an engine of so many processes on this machine. It raises ProbeError when one of them is killed."""

    def run(work: Any, parts: Any, unite: Any, done: Done | None = None) -> Any:
        every = [*parts]
        some = partial(_united, work, unite)
        # Results that a worker unites need not come here; but each worker must have enough to do until the end.
        size = max(1, min(_TOGETHER, len(every) // (4 * workers)))
        each = [every[n : n + size] for n in range(0, len(every), size)]
        # What was not forked shares no lock with threads of this process.
        with ProcessPoolExecutor(min(workers, len(each)), mp_context=get_context("spawn")) as pool:
            try:
                return reduce(unite, _told(_as_completed(pool, some, each), len(each), done))
            except BrokenProcessPool:
                raise ProbeError(
                    "One of the worker processes was killed, or could not begin: mostly there was too little memory. "
                    "Take fewer --workers, or Dask's (--engine dask), which repeat what one had that is lost."
                ) from None

    return run


#: How many parts a worker unites at most.
_TOGETHER = 4


def _united(work: Callable[[T], R], unite: Callable[[R, R], R], parts: Iterable[T]) -> R:
    return in_process(work, parts, unite)


def _as_completed(pool: ProcessPoolExecutor, work: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
    """Yield the results as they come, with few of them waiting in memory."""
    left = iter(parts)
    running: set[Future[R]] = {pool.submit(work, part) for part in islice(left, 2 * pool._max_workers)}  # type: ignore[attr-defined]
    while running:
        ended, running = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            running |= {pool.submit(work, part) for part in islice(left, 1)}
            yield future.result()


def on_dask(scheduler: str) -> Engine:
    """Return an engine of the workers of a Dask scheduler, which repeats what a worker had that is lost.

    Raises UsageError where dask.distributed is not installed.
    """
    try:
        from distributed import Client  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        how = "Install it with: pip install 'probe-analysis[dask]'."
        raise UsageError(f"Dask is not installed here. {how}") from None

    def run(work: Any, parts: Any, unite: Any, done: Done | None = None) -> Any:
        with Client(scheduler, set_as_default=False) as client:
            left = client.map(work, [*parts], pure=False)
            while len(left) > 1:  # a tree, whose knots are tasks: a result moves to where the next one is
                pairs = zip(left[::2], left[1::2], strict=False)
                left = [client.submit(unite, *pair, pure=False) for pair in pairs] + left[
                    len(left) // 2 * 2 :
                ]
            return left[0].result()

    return run
