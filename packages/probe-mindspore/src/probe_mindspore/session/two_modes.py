"""A PyNative step with pieces that are compiled (`mindspore.jit`): two dumps, one of each mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import define, evolve
from probe_runtime.session import RunningStep, TokenGate

__all__ = ["TwoModes"]

Report = dict[str, Any]


@define
class TwoModes:
    """The PyNative step and the one below ``graph``, as one. What is said of it is said of the PyNative part."""

    pynative: RunningStep
    graph: RunningStep

    @property
    def directory(self) -> Path:
        """Where the PyNative part is."""
        return self.pynative.directory

    @property
    def table(self) -> Any:
        """The Cells that are tracked in the PyNative part."""
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
        """Collect from here on. Raises UsageError for a model that is none."""
        self.pynative.resume(model, gate)
        self.graph.resume(model, None if gate is None else evolve(gate))  # each counts for itself

    def pause(self) -> None:
        """Collect no more calls."""
        self.graph.pause()
        self.pynative.pause()

    def write_files(self) -> Report | None:
        """Write the files of both with what is recorded so far."""
        self.graph.write_files()
        return self.pynative.write_files()

    def end(self) -> Report | None:
        """The step is over: write the files of both, take every hook away."""
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

