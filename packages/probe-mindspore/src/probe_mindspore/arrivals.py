"""The arrival of parameters' gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

from attrs import define, field
from probe_format.collector import Collector

from . import gradients
from .cells import CellTable

__all__ = ["Arrivals"]


@define
class Arrivals:
    """The taps on the parameters of one step; they stay over stop() until step()."""

    collector: Collector
    table: CellTable
    _handles: dict[int, Any] = field(factory=dict)

    def hook(self) -> None:
        """Tap every parameter of the table that is not tapped yet."""
        plan = self.collector.plan
        if not plan.keep.parameters_grad or plan.structure:
            return
        for entry in self.table.parameters():
            if id(entry.parameter) not in self._handles:
                arrived = partial(self.collector.parameter_gradient, entry)
                self._handles[id(entry.parameter)] = gradients.watch(entry.parameter, arrived)

    @property
    def handles(self) -> list[Any]:
        """The taps, for whoever must hold them back while something is compiled."""
        return list(self._handles.values())

    def remove(self) -> None:
        """Take the taps away."""
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()
