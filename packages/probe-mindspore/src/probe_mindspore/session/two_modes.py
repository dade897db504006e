"""Run a step of PyNative calls and compiled graphs (`mindspore.jit`) as two dumps, one of each mode."""

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from attrs import define, evolve
from probe_format.write import Look
from probe_runtime.session import RunningStep, TokenGate
from probe_runtime.watch import Allowance

Report = dict[str, Any]


@define
class TwoModes:
    """Run a PyNative step and the one below ``graph`` as one. Its properties are those of the PyNative part."""

    pynative: RunningStep
    graph: RunningStep

    directory, table = property(attrgetter("pynative.directory")), property(attrgetter("pynative.table"))
    gate, running = property(attrgetter("pynative.gate")), property(attrgetter("pynative.running"))

    @property
    def directories(self) -> tuple[Path, ...]:
        """Return the rank folders of both parts."""
        return (*self.pynative.directories, *self.graph.directories)

    @property
    def looks(self) -> Mapping[Path, Look]:
        """Return what was seen of the records of both parts."""
        return {**self.pynative.looks, **self.graph.looks}

    def watch_for(self, moments: frozenset[str]) -> None:
        self.pynative.watch_for(moments)
        self.graph.watch_for(moments)

    def limit(self, allowance: Allowance) -> None:
        """Write no more than this in both parts together."""
        self.pynative.limit(allowance)
        self.graph.limit(allowance)

    def resume(self, model: Any, gate: TokenGate | None) -> None:
        """Collect from now on. Raises UsageError when ``model`` is not a model."""
        self.pynative.resume(model, gate)
        self.graph.resume(model, None if gate is None else evolve(gate))  # each counts for itself

    def pause(self) -> None:
        self.graph.pause()
        self.pynative.pause()

    def write_files(self) -> Report | None:
        self.graph.write_files()
        return self.pynative.write_files()

    def end(self) -> Report | None:
        """End the step: write the files of both parts and remove every hook."""
        self.pause()
        self.graph.end()
        return self.pynative.end()

    def abandon(self) -> None:
        self.graph.abandon()
        self.pynative.abandon()

    def hand_on(self) -> None:
        """Raise the error of the run that was met and not raised yet, if there is one."""
        self.graph.hand_on()
        self.pynative.hand_on()

    def mute(self) -> None:
        self.graph.mute()
        self.pynative.mute()
