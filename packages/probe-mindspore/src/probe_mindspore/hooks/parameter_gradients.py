"""Record parameters' gradients when they are computed, by hooks that are off while a graph is compiled."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from attrs import define, evolve, field
from probe_runtime.collect import Collector, TrackedParameter
from probe_runtime.patching import Held

from probe_mindspore.patching.compile_hook import around_compilation

from . import gradients
from .autograd import Handle
from .modules import CellTable

#: Puts a hook on, and returns what removes it; None where the parameter takes no gradient.
Put = Callable[[], Handle | None]


@define(eq=False)
class ParameterHooks:
    """Hook parameters until `remove`. Safe to use from many threads.

    A hook that is present while a graph is compiled would become part of the graph, so all are removed meanwhile.
    """

    _handles: dict[Put, Handle | None] = field(factory=dict)
    _compilations: Held | None = None
    _lock: threading.Lock = field(factory=threading.Lock)

    def add(self, put: Put) -> Callable[[], None] | None:
        """Put a hook on. Return a function that removes it, or None where the parameter takes no gradient."""
        with self._lock:
            handle = self._handles[put] = put()
            if self._compilations is None:
                self._compilations = around_compilation(self._without_hooks)
        return None if handle is None else partial(self._take_off, put)

    @contextmanager
    def _without_hooks(self) -> Iterator[None]:
        removed = list(self._handles)
        self._take_off(*removed)
        try:
            yield
        finally:
            self._handles |= {put: put() for put in removed}

    def _take_off(self, *puts: Put) -> None:
        for put in puts:
            handle = self._handles.pop(put, None)
            if handle is not None:
                handle.remove()

    def remove(self) -> None:
        compilations, self._compilations = self._compilations, None
        if compilations is not None:
            compilations.undo()
        self._take_off(*self._handles)


@define
class ParameterGradients:
    """Hook the parameters of one step, from start() until step().

    collector: records the gradients.
    table: the Cells whose parameters are hooked.
    graphs: records those of Cells that ran in compiled graphs, where the step has a part for these.
    hooks: removes the hooks.
    """

    collector: Collector
    table: CellTable
    graphs: Collector | None = None
    hooks: ParameterHooks = field(factory=ParameterHooks)
    _hooked: set[int] = field(factory=set)

    def hook(self) -> None:
        """Hook every parameter of the table that has no hook yet."""
        plan = self.collector.plan
        if not plan.keep.parameters_grad or plan.structure:
            return
        for entry in self.table.parameters():
            if id(entry.parameter) not in self._hooked:
                self._hooked.add(id(entry.parameter))
                self.hooks.add(partial(gradients.watch, entry.parameter, partial(self._arrived, entry)))

    def _arrived(self, entry: TrackedParameter, gradient: Any) -> None:
        """Record a gradient for each owner, in the part of the step where its Cell ran."""
        if self.graphs is None or not self.table.has_graphs:
            self.collector.parameter_gradient(entry, gradient)
            return
        sides: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
        for record, name in entry.owners:
            sides[self.table.is_in_graph(record.removesuffix(".parameters_grad"))].append((record, name))
        for collector, owners in zip((self.collector, self.graphs), sides, strict=True):
            if owners:
                collector.parameter_gradient(evolve(entry, owners=tuple(owners)), gradient)
