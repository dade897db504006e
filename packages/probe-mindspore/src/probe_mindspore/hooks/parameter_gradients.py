"""Record parameters' gradients when they are computed.

Each parameter of the chosen Cells gets a hook. Where some of the Cells ran in compiled graphs, a gradient is recorded
in the part of the step, for graphs or for PyNative, in which its Cell ran.
"""

from functools import partial
from typing import Any

from attrs import define, evolve, field
from probe_runtime.collect import Collector, TrackedParameter

from . import gradients
from .modules import CellTable
from .uncompiled_hooks import UncompiledHooks


@define
class ParameterGradients:
    """Hook the parameters of one step, from start() until step().

    collector: records the gradients.
    table: the Cells whose parameters are hooked.
    graphs: records the gradients of Cells that ran in compiled graphs; None where the step has no part for graphs.
    hooks: removes the hooks.
    """

    collector: Collector
    table: CellTable
    graphs: Collector | None = None
    hooks: UncompiledHooks = field(factory=UncompiledHooks)
    _hooked: set[int] = field(factory=set)

    def hook(self) -> None:
        """Hook every parameter of the table that has no hook yet."""
        if not self.collector.plan.parameters_grad:
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
