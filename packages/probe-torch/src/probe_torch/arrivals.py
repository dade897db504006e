"""The arrival of parameters' gradients in ``.grad``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import define, field
from probe_format.collector import Collector
from probe_format.tracked import ParameterEntry

from .modules import ModuleTable

__all__ = ["Arrivals"]


@define
class Arrivals:
    """The hooks on the parameters of one step; they stay over stop() until step()."""

    collector: Collector
    table: ModuleTable
    _hooked: dict[int, tuple[ParameterEntry, Any, Any]] = field(factory=dict)

    def hook(self) -> None:
        """Hook every parameter of the table that has no hook yet."""
        plan = self.collector.plan
        if not plan.keep.parameters_grad or plan.structure:
            return
        for entry in self.table.parameters():
            p = entry.parameter
            if id(p) not in self._hooked and p.is_leaf:
                handle = p.register_post_accumulate_grad_hook(self._told_of(entry))
                self._hooked[id(p)] = (entry, handle, _mark(p.grad))

    def _told_of(self, entry: ParameterEntry) -> Callable[[torch.Tensor], None]:
        collector = self.collector

        def hook(p: torch.Tensor) -> None:
            if p.grad is not None:
                collector.parameter_gradient(entry, p.grad)

        return hook

    def late(self) -> None:
        """Gradients that came by no hook (FSDP sets them after its reduce-scatter): read where they are now."""
        for entry, _, before in self._hooked.values():
            grad = entry.parameter.grad
            if grad is not None and not self.collector.arrived(entry) and _mark(grad) != before:
                self.collector.parameter_gradient(entry, grad)

    def remove(self) -> None:
        """Take the hooks away."""
        for _, handle, _ in self._hooked.values():
            handle.remove()
        self._hooked.clear()


def _mark(grad: torch.Tensor | None) -> tuple[int, int] | None:
    return None if grad is None else (id(grad), grad._version)
