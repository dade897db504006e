"""CompileWrapper the compilation of graphs: one replacement of MindSpore's ``compile``, and everybody's say in it.

Several of Probe's parts have something to do at that moment, and they come and go in any order: each replacing
the method for itself, one would put back what another had put there. So the method is replaced once, as long as
anybody has something to do.
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
    """One part's say: ``make(compile)`` gives what stands around the compilation, while this is put."""

    make: Callable[[Function], Function]

    def put(self) -> None:
        """From now on; the last one put is the outermost."""
        with _lock:
            if not _active:
                _places[:] = [
                    attribute(kind, "compile", sheltered("a compilation", _all)) for kind in _executors()
                ]
                for place in _places:
                    place.put()
            _active.append(self)

    def restore(self) -> None:
        """No more. The last one to leave puts the original back."""
        with _lock:
            if self in _active:
                _active.remove(self)
                if not _active:
                    for place in _places:
                        place.restore()


def around_compilation(region: Callable[[], AbstractContextManager[Any]]) -> list[CompileWrapper]:
    """What to put (and later restore) so that every compilation runs inside ``region()``.

    Only what is not compiled yet comes there; a compiled graph runs without any Python function.
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
    """The classes that compile; PyNative's jit has one of its own."""
    found = (getattr(mindspore._c_expression, name, None) for name in ("GraphExecutor_", "JitExecutor_"))
    return [kind for kind in found if kind is not None and "compile" in vars(kind)]


def parser() -> Any | None:
    """The module where the compiler asks what a name in the source stands for (``resolve_symbol``)."""
    for name in ("mindspore.graph._parse", "mindspore._extends.parse"):  # since 2.9, and before
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "resolve_symbol"):
            return module
    return None
