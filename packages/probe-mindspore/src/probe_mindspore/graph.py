"""The part of a step that is recorded inside compiled graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mindspore
from attrs import define
from probe_format.config import Config
from probe_format.coverage import Coverage
from probe_format.leafparts import TensorOptions
from probe_format.plan import header_of, plan_of
from probe_format.select import NameFilter
from probe_format.step import DumpedStep
from probe_format.stream import Stream
from probe_format.write import FORMAT_VERSION, RankWriter

from .cells import CellTable
from .collector import collector_for
from .flavour import detect
from .graph_taps import GraphTaps, graph_mode
from .tensors import TensorLeaf

__all__ = ["GraphStep", "graph_mode"]


@define(eq=False)
class GraphStep:
    """One step's records of Cells inside graphs: a directory with a journal and files of its own.

    Call `resume` (again after `pause`) with the Cells to record; graphs that run from then on are compiled
    with taps. After `pause` the user's own graphs run; gradients of calls made before are still recorded.
    """

    step: DumpedStep
    taps: GraphTaps
    _installed: contextlib.ExitStack | None = None

    @classmethod
    def begin(cls, config: Config, directory: Path, tool: str, about: Mapping[str, Any]) -> GraphStep:
        """Open the directory and its journal. Raises OSError when it cannot be written.

        about: further keys of the header (rank, step).
        """
        flavour = detect()
        header = header_of(
            config,
            directory,
            {"tool": tool, "mindspore": mindspore.__version__, **about},
            framework=flavour.framework,
            version=FORMAT_VERSION,
            deferred=config.async_dump,
        )
        writer = RankWriter(directory, header)
        coverage = Coverage()
        options = TensorOptions(
            writer.tensor_directory,
            statistics=config.summary_mode != "xor",
            checksum=None if config.summary_mode == "statistics" else config.summary_mode,
            zero_count=config.zero_count,
            share=config.share,
            deferred=config.async_dump,
            bound=config.async_bytes,
        )
        stream = Stream(writer.append, config.max_faults)
        leaf: Any = TensorLeaf(options, coverage, stream.append, requires_grad=False)
        names = NameFilter(config)
        collector = collector_for(plan_of(config), stream, leaf, coverage, names, flavour)
        coverage.not_seen.clear()  # what the taps of PyNative cannot tell, these can
        table = CellTable(flavour)
        taps = GraphTaps(collector, leaf, names, table)

        @contextlib.contextmanager
        def nothing(step: DumpedStep, models: tuple[Any, ...]) -> Any:
            yield

        step = DumpedStep(config, directory, nothing, writer, collector, leaf, table, let_go=taps.close)
        return cls(step, taps)

    @property
    def directory(self) -> Path:
        """Where the records go."""
        return self.step.directory

    @property
    def running(self) -> bool:
        """Between `resume` and `pause`."""
        return self._installed is not None

    def resume(self, table: CellTable) -> None:
        """Record the Cells of ``table`` from here on, in graphs."""
        if self._installed is not None:
            return
        self.step.table = self.taps.table = table
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.taps.in_place())
            self._installed = stack.pop_all()
        stream = self.step.collector.stream
        stream.on = stream.alive

    def pause(self) -> None:
        """Record no more calls; the graphs that have begun are waited for."""
        installed, self._installed = self._installed, None
        if installed is not None:
            installed.close()  # waits for the graphs
        self.step.collector.stream.on = False

    def settle(self) -> dict[str, Any] | None:
        """Write the files with what there is; the journal stays."""
        return self.step.settle()

    def end(self) -> dict[str, Any] | None:
        """The step is over: write the files and hear no more."""
        self.pause()
        return self.step.end()

    def abandon(self) -> None:
        """Let go of everything without writing."""
        with contextlib.suppress(Exception):
            self.pause()
        self.step.abandon()

    def mute(self) -> None:
        """Record nothing more, in this process."""
        self.step.mute()
