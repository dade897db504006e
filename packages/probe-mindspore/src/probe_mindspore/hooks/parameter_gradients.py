"""Record parameters' gradients when they are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from attrs import define, evolve, field
from probe_runtime.collect import Collector, TrackedParameter
from probe_runtime.patching import Held

from probe_mindspore.patching.compile_hook import around_compilation

from . import gradients
from .modules import CellTable

__all__ = ["ParameterGradients"]


@define
class ParameterGradients:
    """Hook the parameters of one step, from start() until step().

    A hook that is present while a graph is compiled would become part of the graph, so all are removed meanwhile.

    collector: records the gradients.
    table: the Cells whose parameters are hooked.
    graphs: records those of Cells that ran in compiled graphs, where the step has a part for these.
    """

    collector: Collector
    table: CellTable
    graphs: Collector | None = None
    _handles: dict[int, tuple[TrackedParameter, Any]] = field(factory=dict)
    _compilations: Held | None = None

    def hook(self) -> None:
        """Hook every parameter of the table that has no hook yet."""
        plan = self.collector.plan
        if not plan.keep.parameters_grad or plan.structure:
            return
        for entry in self.table.parameters():
            if id(entry.parameter) not in self._handles:
                self._handles[id(entry.parameter)] = (entry, self._watch(entry))
        if self._handles and self._compilations is None:
            self._compilations = around_compilation(self._without_hooks)

    def _watch(self, entry: TrackedParameter) -> Any:
        return gradients.watch(entry.parameter, partial(self._arrived, entry))

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

    @contextmanager
    def _without_hooks(self) -> Iterator[None]:
        entries = [entry for entry, _ in self._handles.values()]
        self._take_off()
        try:
            yield
        finally:
            for entry in entries:
                self._handles[id(entry.parameter)] = (entry, self._watch(entry))

    def _take_off(self) -> None:
        for _, handle in self._handles.values():
            if handle is not None:
                handle.remove()
        self._handles.clear()

    def remove(self) -> None:
        """Remove all hooks."""
        if self._compilations is not None:
            self._compilations.undo()
            self._compilations = None
        self._take_off()
