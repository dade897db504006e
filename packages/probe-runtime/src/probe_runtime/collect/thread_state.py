"""Hold for each thread the modules and recorded calls that it is inside of, and find the frames of other threads."""

import gc
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from .callsite import Anchor

_callers: set[int] = set()  # of which calls were collected, at any time


def other_threads() -> Iterator[tuple[bool, FrameType]]:
    """Yield for each thread but this one: whether calls of it were ever collected, and its innermost frame."""
    frames = _frames()
    _callers.intersection_update(frames)
    frames.pop(threading.get_ident())
    return ((which in _callers, frame) for which, frame in frames.items())


def _frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by its number.

    Python 3.11 holds its own lock meanwhile, and waits for it for ever if it collects garbage then which takes that
    lock as well, as a threading.local does (gh-106883).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


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
        _callers.add(threading.get_ident())
