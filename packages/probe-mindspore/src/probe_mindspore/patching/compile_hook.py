"""Wrap MindSpore's compilation of graphs for several parts of Probe at once.

These parts begin and end in any order. If each replaced ``compile`` itself, one would put back another's replacement.
So the method is replaced once, for as long as any part has a wrapper.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import mindspore
from attrs import define
from probe_runtime.collect import sheltered
from probe_runtime.patching import Attribute, Function, attribute

__all__ = ["CompileWrapper", "around_compilation", "parser"]

_lock = threading.Lock()
_active: list[CompileWrapper] = []
_places: list[Attribute] = []


@define(eq=False)
class CompileWrapper:
    """Wrap the compilation while this is put.

    make: gets ``compile`` and returns the function to call instead.
    """

    make: Callable[[Function], Function]

    def put(self) -> None:
        """Begin to wrap. The last one put is the outermost."""
        with _lock:
            if not _active:
                _places[:] = [
                    attribute(kind, "compile", sheltered("a compilation", _all)) for kind in _executors()
                ]
                for place in _places:
                    place.put()
            _active.append(self)

    def restore(self) -> None:
        """Stop wrapping. The last one restored puts the original back."""
        with _lock:
            if self in _active:
                _active.remove(self)
                if not _active:
                    for place in _places:
                        place.restore()


def around_compilation(region: Callable[[], AbstractContextManager[Any]]) -> list[CompileWrapper]:
    """Return wrappers to put, and later restore, so that every compilation runs inside ``region()``.

    A graph that is compiled already runs without it.
    """

    def inside(original: Function) -> Function:
        @functools.wraps(original)
        def compile(executor: Any, *args: Any, **kwargs: Any) -> Any:
            with region():
                return original(executor, *args, **kwargs)

        return compile

    return [CompileWrapper(sheltered("a compilation", inside))]


def _all(original: Function) -> Function:
    @functools.wraps(original)
    def compile(executor: Any, *args: Any, **kwargs: Any) -> Any:
        inner = original
        for around in list(_active):
            inner = around.make(inner)
        return inner(executor, *args, **kwargs)

    return compile


def _executors() -> list[type]:
    """Return the classes that compile; PyNative's jit has one of its own."""
    found = (getattr(mindspore._c_expression, name, None) for name in ("GraphExecutor_", "JitExecutor_"))
    return [kind for kind in found if kind is not None and "compile" in vars(kind)]


def parser() -> Any | None:
    """Return the module by which the compiler looks up names of the source (``resolve_symbol``), or None."""
    for name in ("mindspore.graph._parse", "mindspore._extends.parse"):  # since 2.9, and before
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "resolve_symbol"):
            return module
    return None
