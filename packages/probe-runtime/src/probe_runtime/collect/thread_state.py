"""Hold, for each thread, what it is inside of while calls are collected."""

import threading

from .callsite import Anchor


class ThreadState(threading.local):
    """What this thread is inside of, which decides whether its calls are recorded.

    stack: (forward name, backward name) of the open modules and nodes, outermost first.
    inside: above 0 within a recorded function or within Probe itself.
    anchor: where the frames that are known begin: those outside of the innermost module whose stack is recorded.
    quiet: why nothing is recorded in this thread; None where calls are.
    """

    def __init__(self) -> None:
        self.stack: list[tuple[str, str]] = []
        self.inside = 0
        self.anchor: Anchor | None = None
        self.quiet: str | None = None
