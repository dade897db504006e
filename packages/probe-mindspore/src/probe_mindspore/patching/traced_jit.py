"""Tell which Cells a function under @jit(capture_mode="trace") can call, and record no call while it is traced.

A call while it is traced builds a graph and computes nothing. Once traced, the function runs no Python, so no Cell is
called. The objects that the function refers to show which Cells its graph contains.
"""

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from probe_runtime.collect import sheltered
from probe_runtime.patching import Function, Held, Place, listening, place
from probe_runtime.patching import thread as _thread

from .compile_hook import first_of
from .reach import Reach
from .wrappers import switch

_WRAPPER = "jit_trace_wrap"  # the name of the function that @jit makes


_TRACE = first_of("mindspore.graph.jit_trace", "mindspore.common.jit_trace")  # the first is since 2.9
_CONTEXT = first_of("mindspore.graph.jit_context", "mindspore.common.jit_context")
_context: Callable[[], Any] = getattr(_CONTEXT, "jit_context", lambda: None)


def is_tracing() -> bool:
    """Return whether a function is being traced: calls then build a graph and compute nothing."""
    return _context() is not None


Note = Callable[[Any], None]
_noting: list[Note] = []


def watched_traces(note: Note) -> Held:
    """Call ``note(cell)`` for every Cell that a traced function refers to, each time it is called, until undone."""
    return listening(_noting, note, trace_places())


def trace_places() -> list[Place]:
    """Return the places that notice a traced call; none where MindSpore has other functions."""
    makers = {"_jit_trace_begin": _BEGINNING, "_jit_trace_end": _ENDING}
    return [place(_TRACE, name, make) for name, make in makers.items() if hasattr(_TRACE, name)]


class _Tracing(threading.local):
    depth = 0


_tracing = _Tracing()


def _beginning(original: Function) -> Function:
    @functools.wraps(original)
    def begin(*args: Any, **kwargs: Any) -> Any:
        for note in list(_noting):
            for cell in Reach.of(_traced_call()).cells:
                note(cell)
        building = original(*args, **kwargs)
        if building and switch.tap is not None:
            _thread.muted += 1
            _tracing.depth += 1
        return building

    return begin


def _ending(original: Function) -> Function:
    @functools.wraps(original)
    def end(*args: Any, **kwargs: Any) -> Any:
        if _tracing.depth:
            _thread.muted -= 1
            _tracing.depth -= 1
        return original(*args, **kwargs)

    return end


_BEGINNING, _ENDING = sheltered("a traced call", _beginning), sheltered("a traced call", _ending)


def _traced_call() -> Any:
    """Return (function, arguments) of the traced call, which the nearest wrapper on the stack holds, or None."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != _WRAPPER:
        frame = frame.f_back
    return None if frame is None else (frame.f_locals.get("fn"), frame.f_locals.get("args"))
