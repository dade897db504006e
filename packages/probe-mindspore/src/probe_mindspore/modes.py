"""A step whose Cells run in compiled graphs, alone (GRAPH_MODE) or beside PyNative (`mindspore.jit`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from attrs import define, field
from probe_format.step import Step
from probe_format.tokens import TokenGate

from .cells import CellTable

__all__ = ["BothModes", "GraphAlone", "GraphPart"]

Report = dict[str, Any]


class GraphPart(Protocol):
    """What is recorded inside compiled graphs (`graph.GraphStep`)."""

    def resume(self, table: CellTable) -> None:
        """Record the Cells of ``table`` from here on."""

    def pause(self) -> None:
        """Record no more."""

    def settle(self) -> Report | None:
        """Write the files with what there is."""

    def end(self) -> Report | None:
        """The step is over: write the files."""

    def abandon(self) -> None:
        """Let go of everything without writing."""

    def mute(self) -> None:
        """Record nothing more, in this process."""


@define
class GraphAlone:
    """A step in GRAPH_MODE: all that is recorded is inside graphs."""

    directory: Path
    graph: GraphPart
    table: CellTable
    gate: TokenGate | None = None
    running: bool = False
    _models: dict[int, Any] = field(factory=dict)

    def resume(self, model: Any, gate: TokenGate | None) -> None:
        """Collect from here on. Raises UsageError for a model that is none."""
        if model is not None and id(model) not in self._models:
            self.table.add_model(model)
            self._models[id(model)] = model
        self.gate = gate
        self.graph.resume(self.table)
        self.running = True

    def pause(self) -> None:
        """Collect no more calls."""
        if self.running:
            self.running = False
            self.graph.pause()

    def settle(self) -> Report | None:
        """Write the files with what there is."""
        return self.graph.settle()

    def end(self) -> Report | None:
        """The step is over."""
        self.pause()
        return self.graph.end()

    def abandon(self) -> None:
        """Let go of everything without writing."""
        self.running = False
        self.graph.abandon()

    def mute(self) -> None:
        """Record nothing more, in this process."""
        self.graph.mute()


@define
class BothModes:
    """A PyNative step with jitted pieces: two dumps, below ``pynative`` and ``graph``."""

    pynative: Step
    graph: GraphPart

    @property
    def directory(self) -> Path:
        """Where the PyNative part is."""
        return self.pynative.directory

    @property
    def table(self) -> Any:
        """The Cells that are tracked, in both parts."""
        return self.pynative.table

    @property
    def gate(self) -> TokenGate | None:
        """The calls of the model that are collected, where not all are."""
        return self.pynative.gate

    @property
    def running(self) -> bool:
        """Between start() and stop()."""
        return self.pynative.running

    def resume(self, model: Any, gate: TokenGate | None) -> None:
        """Collect from here on."""
        self.pynative.resume(model, gate)
        self.graph.resume(self.table)

    def pause(self) -> None:
        """Collect no more calls."""
        if self.running:
            self.graph.pause()
        self.pynative.pause()

    def settle(self) -> Report | None:
        """Write the files with what there is."""
        self.graph.settle()
        return self.pynative.settle()

    def end(self) -> Report | None:
        """The step is over."""
        self.pause()
        self.graph.end()
        return self.pynative.end()

    def abandon(self) -> None:
        """Let go of everything without writing."""
        self.graph.abandon()
        self.pynative.abandon()

    def mute(self) -> None:
        """Record nothing more, in this process."""
        self.graph.mute()
        self.pynative.mute()
