"""The arrival of parameters' gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from attrs import define, field
from probe_format.collector import Collector
from probe_format.patching.places import Attribute
from probe_format.tracked import ParameterEntry

from . import gradients
from .cells import CellTable
from .compiling import around_compilation

__all__ = ["Arrivals"]


@define
class Arrivals:
    """The taps on the parameters of one step; they stay over stop() until step().

    A tap that is there while a graph is compiled would become part of the graph: for that moment all are off.
    """

    collector: Collector
    table: CellTable
    _handles: dict[int, tuple[ParameterEntry, Any]] = field(factory=dict)
    _places: list[Attribute] = field(factory=list)

    def hook(self) -> None:
        """Tap every parameter of the table that is not tapped yet."""
        plan = self.collector.plan
        if not plan.keep.parameters_grad or plan.structure:
            return
        for entry in self.table.parameters():
            if id(entry.parameter) not in self._handles:
                self._handles[id(entry.parameter)] = (entry, self._watch(entry))
        if self._handles and not self._places:
            self._places = around_compilation(self._held_back)
            for place in self._places:
                place.put()

    def _watch(self, entry: ParameterEntry) -> Any:
        return gradients.watch(entry.parameter, partial(self.collector.parameter_gradient, entry))

    @contextmanager
    def _held_back(self) -> Iterator[None]:
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
        """Take the taps away."""
        for place in self._places:
            place.restore()
        self._places = []
        self._take_off()
