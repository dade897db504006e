"""Where each thread is while calls are collected."""

from __future__ import annotations

import threading

__all__ = ["ThreadState"]


class ThreadState(threading.local):
    """Where this thread is: the open modules and nodes, and whether calls are recorded at all.

    stack: (forward name, backward name) of what is open, outermost first. inside: above 0 within a recorded
    function or within Probe itself. quiet: why nothing is recorded here, or None.
    """

    def __init__(self) -> None:
        self.stack: list[tuple[str, str]] = []
        self.inside = 0
        self.quiet: str | None = None
