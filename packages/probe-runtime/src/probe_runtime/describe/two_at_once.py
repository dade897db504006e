"""Run two jobs at a time: a large file is written while its numbers are computed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

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
