"""Put hooks on tensors, and take them off while MindSpore compiles a graph, so that no graph contains a hook."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from attrs import define, field
from probe_runtime.patching import Held

from probe_mindspore.patching.compile_hook import around_compilation

from .autograd import Handle

#: Puts a hook on, and returns what removes it; None where the tensor takes no gradient.
Put = Callable[[], Handle | None]


@define(eq=False)
class UncompiledHooks:
    """Hook tensors until each hook is taken off, or `remove`. Safe to use from many threads.

    A hook that is present while a graph is compiled would become part of the graph that gets the tensor, or would keep
    it from being compiled, so all are removed meanwhile.
    """

    _handles: dict[Put, Handle | None] = field(factory=dict)
    _compilations: Held | None = None
    _lock: Any = field(factory=threading.RLock)

    def add(self, put: Put) -> Callable[[], None] | None:
        """Put a hook on. Return a function that removes it, or None where the tensor takes no gradient."""
        with self._lock:
            handle = put()
            if handle is None:
                return None
            self._handles[put] = handle
            if self._compilations is None:
                self._compilations = around_compilation(self._without_hooks)
        return partial(self._off, put)

    @contextmanager
    def _without_hooks(self) -> Iterator[None]:
        removed = list(self._handles)
        self._take_off(*removed)
        try:
            yield
        finally:
            self._handles |= {put: put() for put in removed}

    def _off(self, put: Put) -> None:
        with self._lock:
            self._take_off(put)
            if not self._handles:
                self.remove()

    def _take_off(self, *puts: Put) -> None:
        for put in puts:
            handle = self._handles.pop(put, None)
            if handle is not None:
                handle.remove()

    def remove(self) -> None:
        with self._lock:
            compilations, self._compilations = self._compilations, None
            if compilations is not None:
                compilations.undo()
            self._take_off(*self._handles)
