"""Run several steps as one: a step's parts for eager and compiled code, or the dump and the watch of one step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import define, evolve
from probe_format.write import Look

from probe_runtime.collect.module_table import AnyModuleTable
from probe_runtime.watch import Allowance

from .step import RunningStep
from .token_gate import TokenGate

Report = dict[str, Any] | None


@define(eq=False)
class JointStep(RunningStep):
    """Run steps as one, whose properties and reports are those of the first.

    parts: in the order in which they begin, each around those after it: the last one pauses and ends first.
    """

    parts: tuple[RunningStep, ...]

    @property
    def directory(self) -> Path:
        return self.parts[0].directory

    @property
    def directories(self) -> tuple[Path, ...]:
        return tuple(path for part in self.parts for path in part.directories)

    @property
    def table(self) -> AnyModuleTable:
        return self.parts[0].table

    @property
    def gate(self) -> TokenGate | None:  # type: ignore[override]
        return self.parts[0].gate

    @property
    def running(self) -> bool:
        return self.parts[0].running

    @property
    def looks(self) -> Mapping[Path, Look]:
        return {path: look for part in self.parts for path, look in part.looks.items()}

    def watch_for(self, moments: frozenset[str]) -> None:
        for part in self.parts:
            part.watch_for(moments)

    def limit(self, allowance: Allowance) -> None:
        for part in self.parts:
            part.limit(allowance)

    def resume(self, model: Any, gate: TokenGate | None) -> None:
        for part in self.parts:
            part.resume(model, gate and evolve(gate))  # each part counts the calls for itself

    def pause(self) -> None:
        for part in self.parts[::-1]:
            part.pause()

    def write_files(self) -> Report:
        return [part.write_files() for part in self.parts[::-1]][-1]

    def end(self) -> Report:
        self.pause()
        return [part.end() for part in self.parts[::-1]][-1]

    def abandon(self) -> None:
        for part in self.parts[::-1]:
            part.abandon()

    def hand_on(self) -> None:
        for part in self.parts[::-1]:
            part.hand_on()

    def mute(self) -> None:
        for part in self.parts[::-1]:
            part.mute()
