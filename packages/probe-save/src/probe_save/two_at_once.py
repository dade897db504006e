"""Two pieces of work at a time: a large file is written while its numbers are computed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["LARGE", "beside"]

A = TypeVar("A")
B = TypeVar("B")

#: Bytes from which a second thread is worth its start.
LARGE = 4 << 20


def beside(here: Callable[[], A], there: Callable[[], B]) -> tuple[A, B]:
    """Both results, once both are there; ``there`` runs in another thread. Raises what either raised."""
    results: list[B] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(there())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="probe-save-file")
    thread.start()
    try:
        mine = here()
    finally:
        thread.join()
    if errors:
        raise errors[0]
    return mine, results[0]
