"""Hold, for each thread, what it is inside of while calls are collected."""

import threading


class ThreadState(threading.local):
    """What this thread is inside of, which decides whether its calls are recorded.

    stack: (forward name, backward name) of the open modules and nodes, outermost first.
    inside: above 0 within a recorded function or within Probe itself.
    quiet: why nothing is recorded in this thread; None where calls are.
    """

    def __init__(self) -> None:
        self.stack: list[tuple[str, str]] = []
        self.inside = 0
        self.quiet: str | None = None
