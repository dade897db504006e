"""A signal, or an event of a trace, that comes while a function of ours runs, and ends the user's work by an error."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from probe_format.journal import events
from probe_runtime.collect.backward_records import BackwardRecords
from probe_runtime.collect.recorder import Recorder
from probe_runtime.collect.walk import Part

__all__ = ["PLACES", "WAYS", "Late", "rings_in"]

#: Where a signal may come in what both frameworks run of ours.
PLACES: dict[str, tuple[Any, str]] = {
    "a call begins": (Recorder, "begin"),
    "its inputs": (Part, "arguments"),
    "it ends": (Recorder, "end"),
    "its output": (events, "exit"),
    "the graph is hooked": (BackwardRecords, "attach"),
}


class Late(TimeoutError):
    """A request's time is up. (It is an OSError, as a full disk is.)"""


def _ring(number: int, frame: Any) -> None:
    raise Late


def _look(frame: Any, event: str, arg: Any) -> None:
    raise Late


#: What makes the error come next.
WAYS: dict[str, Callable[[], None]] = {
    "signal": lambda: os.kill(os.getpid(), signal.SIGUSR1),
    "trace": lambda: sys.settrace(_look),
    "profile": lambda: sys.setprofile(_look),
}


@contextmanager
def rings_in(owner: Any, name: str, way: str = "signal") -> Iterator[list[int]]:
    """While open, the error comes at the first call of that function of ours, before it does anything; how often."""
    times = [0]
    original = getattr(owner, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        if not times[0]:
            times[0] += 1
            WAYS[way]()
        return original(*args, **kwargs)

    before = signal.signal(signal.SIGUSR1, _ring)
    setattr(owner, name, called)
    try:
        yield times
    finally:
        setattr(owner, name, original)
        signal.signal(signal.SIGUSR1, before)
        sys.settrace(None)
        sys.setprofile(None)
