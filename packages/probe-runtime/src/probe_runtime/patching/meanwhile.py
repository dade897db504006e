"""Note that calls of other threads are not seen, where such threads run while functions have their originals back."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .places import unseen

_WHY = "functions have their originals then, in every thread"
_OURS = "probe-"


@contextmanager
def others_noted(what: str) -> Iterator[None]:
    """Note calls of other threads as not seen, if any other thread runs within this region.

    what: what is done meanwhile: "while json was imported".
    """
    before = _times()
    try:
        yield
    finally:
        if _times() != before:
            unseen[f"calls of other threads {what}"] = _WHY


def _times() -> dict[int | None, object]:
    """Return id -> CPU time of each other thread that Python knows; where that is not known, a new object each time.

    The time is that of the clock which pthread_getcpuclockid() of Linux would name; that function must not be asked
    for a thread that has ended.
    """
    here = threading.get_ident()
    others = [t for t in threading.enumerate() if t.ident != here and not t.name.startswith(_OURS)]
    return {each.native_id: _time(each.native_id) for each in others}


def _time(thread: int | None) -> object:
    if thread is None or sys.platform != "linux":
        return object()
    try:
        return time.clock_gettime_ns((~thread << 3) | 6)
    except OSError:  # it has ended
        return None
