"""Find the Cells that functions under @jit(capture_mode="trace") can call, whose calls are not recorded.

Once traced such a function runs no Python, so no Cell is called. The objects that it refers to show what its graph
contains.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from mindspore import nn
from probe_runtime.collect import sheltered
from probe_runtime.patching import Function, Held, Place, listening, place
from probe_runtime.patching import thread as _thread

from .compile_hook import first_of
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
            for cell in _held(_traced_function()):
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


def _traced_function() -> Any:
    """Return (function, arguments) of the traced call, which the nearest wrapper on the stack holds, or None."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != _WRAPPER:
        frame = frame.f_back
    return None if frame is None else (frame.f_locals.get("fn"), frame.f_locals.get("args"))


def _held(value: Any) -> list[Any]:
    """Return the Cells that a function can reach by its closure, its defaults and the globals that it names."""
    found: list[Any] = []
    met: set[int] = set()
    todo = [value]
    while todo:
        one = todo.pop()
        if id(one) in met:
            continue
        met.add(id(one))
        if isinstance(one, nn.Cell):
            found.append(one)
        elif isinstance(one, (tuple, list)):
            todo += one
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, MethodType):
            todo += [one.__self__, one.__func__]
        elif isinstance(one, FunctionType) and not one.__module__.startswith("mindspore."):
            todo += [one.__defaults__, one.__kwdefaults__]
            todo += [cell.cell_contents for cell in one.__closure__ or () if _is_filled(cell)]
            todo += [one.__globals__[name] for name in _names(one.__code__) if name in one.__globals__]
    return found


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading it is the only way to know
    except ValueError:
        return False
    return True


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
