"""Put together one dumped step of MindSpore, with the hooks and patches in place while it collects."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import mindspore
from attrs import field, frozen
from probe_format.write import Coverage, RankWriter, clear
from probe_runtime.collect import Collector, EventStream, Target, header_of, plan_of
from probe_runtime.config import Config
from probe_runtime.describe import options_of
from probe_runtime.patching import is_muted
from probe_runtime.select import NameFilter
from probe_runtime.session import DumpingStep, Install, JointStep, RunningStep

from probe_mindspore.graph.taps import GraphTaps, graph_mode
from probe_mindspore.hooks import gradients
from probe_mindspore.hooks.collector import collector_for, watched_waits
from probe_mindspore.hooks.modules import CellTable, has_read_graphs, patched_call
from probe_mindspore.hooks.parameter_gradients import ParameterGradients
from probe_mindspore.hooks.scalers import watched_scaling
from probe_mindspore.module_kind import CELLS, ModuleKind, late_torch
from probe_mindspore.patching.apis import apis_of
from probe_mindspore.patching.patches import Patches
from probe_mindspore.patching.regions import step_regions
from probe_mindspore.patching.traced_jit import is_tracing, watched_traces
from probe_mindspore.tensors.leaf import TensorLeaf

About = Mapping[str, Any]
#: What the header of a PyNative step says where an input's gradient is not the call's own share (spec/dump.md).
_OWN: Mapping[str, Any] = {} if gradients.OWN else {"input_gradients": "whole"}
_NO_MODEL = "start() was given no model, by which they are found"


@frozen
class _ModeParts:
    writer: RankWriter
    leaf: TensorLeaf
    names: NameFilter
    collector: Collector


@frozen
class StepOpener:
    """Open the steps of one session.

    config: the debugger's configuration.
    tool: name and version of Probe, as the header has them.
    module_kind: which modules are recorded.
    leaf: makes what describes a step's tensors.
    target: what the replacements call; it is given the recorder of each step.
    patches: the replacements of functions.
    """

    config: Config
    tool: str
    module_kind: ModuleKind
    leaf: Callable[..., TensorLeaf] = TensorLeaf
    target: Target = field(factory=Target, init=False)
    patches: Patches = field(init=False)

    @patches.default
    def _patches(self) -> Patches:
        return Patches(apis_of(self.config, self.module_kind), self.target)

    def target_for(self, dump_path: Path, model: Any) -> tuple[Path, Callable[..., RunningStep]]:
        """Return the directory for the steps of a model, and the method that opens one.

        Compiled graphs have a dump of their own, below ``graph``, where a step has PyNative calls too.
        """
        level = self.config.level
        if level == "L1" or self.module_kind is not CELLS:  # MindSpore compiles no other modules
            return dump_path, self.open
        if graph_mode() and level == "L0":
            return dump_path, self.open_graph
        if graph_mode() or has_read_graphs(model, self.module_kind):
            return dump_path / "pynative", self.open_both
        return dump_path, self.open_with_graphs

    def open(self, directory: Path, about: About) -> DumpingStep:
        """Open a step of PyNative calls. Raises OSError when the directory cannot be written."""
        return self._pynative(self._parts(directory, {**_OWN, **about}), CellTable(self.module_kind))

    def _pynative(self, made: _ModeParts, table: CellTable, graphs: Collector | None = None) -> DumpingStep:
        """Open the PyNative part.

        graphs: the collector of the part for compiled graphs, if there is one.
        """
        collector = made.collector
        arrivals = ParameterGradients(collector, table, graphs)
        if collector.plan.keep.backward_output and not gradients.OWN:
            collector.coverage.unseen("own share of the gradients of inputs", gradients.WHY_NOT_OWN)

        @contextlib.contextmanager
        def install(step: DumpingStep, models: tuple[Any, ...]) -> Iterator[None]:
            if self.config.level != "L1":
                arrivals.hook()
            with contextlib.ExitStack() as stack:
                if collector.recorder.alarm is not None:
                    stack.enter_context(watched_scaling(collector.recorder.alarm.mute))
                if table.entries:
                    stack.enter_context(patched_call(table, step.tap, lambda: is_muted() or is_tracing()))
                    stack.enter_context(watched_traces(table.add_traced))
                if self.config.level != "L0":
                    stack.enter_context(watched_waits(collector.works))
                    if not models:
                        collector.coverage.unseen("calls of the Primitives that Cells hold", _NO_MODEL)
                    regions = step_regions(collector.push, collector.pop, collector.coverage)
                    tapped = collector.tapped(self.target, self.patches, models, regions)
                    stack.enter_context(tapped)
                yield

        return self._dumped(made, install, table, remove_hooks=arrivals.hooks.remove)

    def open_graph(self, directory: Path, about: About) -> DumpingStep:
        """Open a step of compiled graphs alone. Raises OSError when the directory cannot be written."""
        return self._graph(self._parts(directory, about), CellTable(self.module_kind))

    def _graph(self, made: _ModeParts, table: CellTable, beside: Coverage | None = None) -> DumpingStep:
        """Open the part for compiled graphs.

        beside: the coverage of the PyNative part, if there is one.
        """
        if made.collector.recorder.alarm is not None:
            made.collector.recorder.alarm.only_late()  # what MindSpore compiles runs behind Python
        taps = GraphTaps(
            made.collector, made.leaf, made.names, table, beside, self.config.graph_taps == "always"
        )

        @contextlib.contextmanager
        def install(step: DumpingStep, models: tuple[Any, ...]) -> Iterator[None]:
            with contextlib.ExitStack() as stack:
                if step.gate is not None:  # the model's calls are counted; nothing else is called from Python
                    counted = {key: entry for key, entry in table.entries.items() if not entry.base}
                    gated = CellTable(self.module_kind, entries=counted)
                    stack.enter_context(patched_call(gated, step.on_call, is_muted))
                stack.enter_context(taps.in_place())
                yield

        return self._dumped(made, install, table, wait=taps.wait, remove_hooks=taps.close)

    def open_both(self, directory: Path, about: About) -> JointStep:
        """Open a step of PyNative calls and of the graphs that are known to run in it."""
        modes = ((), ()) if graph_mode() else (("pynative",), ("graph",))
        return self._both(directory, about, *(CellTable(self.module_kind, *mode) for mode in modes))

    def open_with_graphs(self, directory: Path, about: About) -> JointStep:
        """Open a step of PyNative calls, and of graphs of jitted functions that may call the model's Cells."""
        tables = CellTable(self.module_kind), CellTable(self.module_kind)
        return self._both(directory, about, *tables, perhaps=True)

    def _both(
        self, directory: Path, about: About, pynative: CellTable, graph: CellTable, *, perhaps: bool = False
    ) -> JointStep:
        graph.in_graphs, graph.traced = pynative.in_graphs, pynative.traced
        graph.uncalled = "not called in a graph in this step"
        below = self.config.dump_path / "graph" / directory.parent.name / directory.name
        if self.config.overwrite:
            clear(below)
        outside = self._parts(directory, {**_OWN, **about})
        inside = self._parts(below, about, late=perhaps)

        def matched_inside(*entry: str) -> bool:
            return entry not in [found[:2] for found in inside.names.unmatched(inside.collector.seen_names())]

        first = self._pynative(outside, pynative, inside.collector)
        second = self._graph(inside, graph, outside.collector.coverage)
        first.matched_elsewhere = matched_inside
        second.matched_elsewhere = lambda kind, value: True  # the other part reports it, for both
        return JointStep((first, second))

    def _dumped(self, made: _ModeParts, install: Install, table: CellTable, **hooks: Any) -> DumpingStep:
        writer, collector = made.writer, made.collector
        return DumpingStep(
            self.config, writer.directory, install, writer, collector, made.leaf, table, **hooks
        )

    def _parts(self, directory: Path, about: About, *, late: bool = False) -> _ModeParts:
        """Open what every step has.

        late: whether to write nothing to disk before the first record.

        Raises OSError when the directory cannot be written.
        """
        config, module_kind = self.config, self.module_kind
        about = {"tool": self.tool, "mindspore": mindspore.__version__, **about}
        header = header_of(config, directory, about, framework=module_kind.framework)
        writer = RankWriter(directory, header, late=late)
        coverage = Coverage()
        if came_late := late_torch(module_kind):
            coverage.unseen("modules and functions of torch", came_late)
        options = options_of(config, writer.tensor_directory)
        stream = EventStream(writer, config.max_faults)
        own = {"requires_grad": module_kind.requires_grad, "begin": writer.begin if late else None}
        leaf = self.leaf(options, coverage, stream.append, **own)
        names = NameFilter(config)
        collector = collector_for(plan_of(config), stream, leaf, coverage, names, module_kind)
        return _ModeParts(writer, leaf, names, collector)
