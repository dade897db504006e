"""One dumped step of MindSpore: its parts put together, and what is in place while it collects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import mindspore
from attrs import frozen
from probe_format.collector import Target
from probe_format.config import Config
from probe_format.coverage import Coverage
from probe_format.leafparts import TensorOptions
from probe_format.patching.switch import is_muted
from probe_format.plan import header_of, plan_of
from probe_format.select import NameFilter
from probe_format.step import DumpedStep
from probe_format.stream import Stream
from probe_format.write import FORMAT_VERSION, RankWriter

from .arrivals import Arrivals
from .cells import CellTable, patched_call
from .collectives import watched_waits
from .collector import collector_for
from .flavour import Flavour
from .guests import Guests
from .jit_guard import JitGuard
from .patches import Patches
from .scopes import Scopes
from .tensors import TensorLeaf

__all__ = ["Steps"]


@frozen
class Steps:
    """Opens the steps of one session. tool: as the header names it; target: the tap of ``patches``."""

    config: Config
    tool: str
    flavour: Flavour
    patches: Patches
    target: Target

    def place(self, dump_path: Path, model: Any) -> tuple[Path, Callable[..., DumpedStep]]:
        """Where the steps of a model go, and what opens one."""
        return dump_path, self.open

    def open(self, directory: Path, about: Mapping[str, Any]) -> DumpedStep:
        """Open the directory and its journal. Raises OSError when it cannot be written."""
        config, flavour = self.config, self.flavour
        header = header_of(
            config,
            directory,
            {"tool": self.tool, "mindspore": mindspore.__version__, **about},
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
        leaf = TensorLeaf(options, coverage, stream.append, requires_grad=flavour.requires_grad)
        collector = collector_for(plan_of(config), stream, leaf, coverage, NameFilter(config), flavour)
        table = CellTable(flavour)
        arrivals = Arrivals(collector, table)

        @contextlib.contextmanager
        def install(step: DumpedStep, models: tuple[Any, ...]) -> Iterator[None]:
            if config.level != "L1":
                arrivals.hook()
            with contextlib.ExitStack() as stack:
                if table.entries:
                    stack.enter_context(patched_call(table, step.on_call, is_muted))
                stack.enter_context(self._functions(step, models))
                yield

        return DumpedStep(config, directory, install, writer, collector, leaf, table, let_go=arrivals.remove)

    @contextlib.contextmanager
    def _functions(self, step: DumpedStep, models: tuple[Any, ...]) -> Iterator[None]:
        """The functions of MindSpore, and what else is in place while calls are collected."""
        collector, patches = step.collector, self.patches
        with contextlib.ExitStack() as stack:
            self.target.collector = collector
            stack.callback(self.target.clear)
            if self.config.level != "L0":  # at L0 no function is replaced
                stack.callback(collector.works.give_up)
                stack.enter_context(watched_waits(collector.works))
                # First what comes and goes with the patches, so that early names are looked for once.
                stack.enter_context(Guests(patches))
                regions = stack.enter_context(Scopes(patches, collector.push, collector.pop))
                stack.callback(_count_quiet, collector.coverage, regions)
                stack.enter_context(JitGuard(patches))
                patches.apply(*models)
                stack.callback(patches.undo)
                for missing, why in patches.missing.items():
                    collector.coverage.missing.setdefault(missing, why)
            yield


def _count_quiet(coverage: Coverage, regions: Scopes) -> None:
    for reason, times in regions.quiet.items():
        coverage.add("left_out", reason, times)
