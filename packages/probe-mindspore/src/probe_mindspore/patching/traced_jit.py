"""Find the Cells that functions under @jit(capture_mode="trace") can call, whose calls are not recorded.

Once traced such a function runs no Python, so no Cell is called. The objects that it refers to show what its graph
contains.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, MethodType
from typing import Any

from mindspore import nn
from probe_runtime.collect import sheltered
from probe_runtime.patching import Function, attribute

__all__ = ["is_tracing", "watched_traces"]

_PACKAGES = ("mindspore.graph", "mindspore.common")  # the first is since 2.9
_WRAPPER = "jit_trace_wrap"  # the name of the function that @jit makes


def _module(name: str) -> Any:
    for package in _PACKAGES:
        try:
            return importlib.import_module(f"{package}.{name}")
        except ImportError:
            continue
    return None


_context: Callable[[], Any] = getattr(_module("jit_context"), "jit_context", lambda: None)


def is_tracing() -> bool:
    """Return whether a function is being traced: calls then build a graph and compute nothing."""
    return _context() is not None


@contextmanager
def watched_traces(note: Callable[[Any], None]) -> Iterator[None]:
    """Call ``note(cell)`` for every Cell that a traced function refers to, each time it is called, while open."""
    module = _module("jit_trace")
    if module is None or not hasattr(module, "_jit_trace_begin"):
        yield
        return

    def noting(original: Function) -> Function:
        @functools.wraps(original)
        def begin(*args: Any, **kwargs: Any) -> Any:
            for cell in _held(_traced_function()):
                note(cell)
            return original(*args, **kwargs)

        return begin

    place = attribute(module, "_jit_trace_begin", sheltered("a traced call", noting))
    place.put()
    try:
        yield
    finally:
        place.restore()


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
