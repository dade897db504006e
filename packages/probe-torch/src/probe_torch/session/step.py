"""Put together one dumped step of torch, with the hooks and patches in place while it collects."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import field, frozen
from probe_format.write import Coverage, RankWriter
from probe_runtime.collect import Collector, EventStream, Target, guarded, header_of, plan_of
from probe_runtime.config import Config
from probe_runtime.describe import options_of
from probe_runtime.select import NameFilter
from probe_runtime.session import DumpingStep
from torch import nn

from probe_torch.aside import aside
from probe_torch.compiling import uncompiled
from probe_torch.hooks import leaf_gradients
from probe_torch.hooks.collector import collector_for
from probe_torch.hooks.modules import ModuleTable, patched_call
from probe_torch.hooks.parameter_gradients import ParameterGradients
from probe_torch.hooks.recompute import watched_checkpoints
from probe_torch.hooks.scalers import watched_scaling
from probe_torch.hooks.swaps import watched_swaps
from probe_torch.patching.apis import apis_of
from probe_torch.patching.fakes import quiet_fakes
from probe_torch.patching.operators import operators
from probe_torch.patching.patches import Patches
from probe_torch.patching.regions import step_regions
from probe_torch.saving import FRAMEWORK
from probe_torch.tensors.inflight import watched_collectives
from probe_torch.tensors.leaf import TensorLeaf


@frozen
class StepOpener:
    """Open the steps of one session.

    config: the debugger's configuration.
    tool: name and version of Probe, as the header has them.
    leaf: makes what describes a step's tensors.
    target: the tap of ``patches``.
    patches: the wrappers of torch's functions.
    """

    config: Config
    tool: str
    leaf: Callable[..., TensorLeaf] = TensorLeaf
    target: Target = field(factory=Target, init=False)
    patches: Patches = field(init=False)

    @patches.default
    def _patches(self) -> Patches:
        return Patches(apis_of(self.config), self.target)

    def open(self, directory: Path, about: Mapping[str, Any]) -> DumpingStep:
        """Return a new step; make its directory and journal.

        about: keys of the header, such as rank and step.

        Raises OSError when the directory cannot be written.
        """
        config = self.config
        about = {"tool": self.tool, **about}
        header = header_of(config, directory, about, framework=FRAMEWORK)
        writer = RankWriter(directory, header)
        coverage = Coverage()
        options = options_of(config, writer.tensor_directory)
        stream = EventStream(writer, config.max_faults)
        leaf: Any = self.leaf(options, coverage, stream.append)
        collector = collector_for(plan_of(config), stream, leaf, coverage, NameFilter(config))
        table = ModuleTable()
        arrivals = ParameterGradients(collector, table)

        def let_go(t: torch.Tensor) -> None:
            arrivals.let_go(t)
            with aside():
                leaf_gradients.let_go(t)

        @contextlib.contextmanager
        def install(step: DumpingStep, models: tuple[nn.Module, ...]) -> Iterator[None]:
            table.note_scripted(models)
            with contextlib.ExitStack() as stack:
                if config.compiled == "eager":
                    table.note_uncompiled(models)
                    stack.enter_context(uncompiled())
                else:
                    table.note_compiled(models)
                if config.level != "L1":
                    arrivals.hook()
                    stack.enter_context(arrivals.in_steps(config.optimizer_grad))
                if table.entries:
                    stack.enter_context(patched_call(table, arrivals.on_call(step.tap)))
                if collector.recorder.alarm is not None:
                    stack.enter_context(watched_scaling(collector.recorder.alarm.scaling))
                stack.enter_context(watched_swaps(guarded("a swap", "its tensors", let_go)))
                stack.enter_context(watched_checkpoints(collector.segments))
                works = None if config.level == "L0" else collector.works
                stack.enter_context(watched_collectives(leaf.inflight, operators(), works))
                stack.enter_context(quiet_fakes())
                if config.level != "L0":
                    stack.enter_context(self._tapped(collector, models))
                yield

        parts = config, directory, install, writer, collector, leaf, table
        return DumpingStep(*parts, late=arrivals.late, remove_hooks=arrivals.remove)

    def _tapped(
        self, collector: Collector, models: tuple[nn.Module, ...]
    ) -> contextlib.AbstractContextManager[None]:
        push, pop = (guarded("a region", each.__name__, each) for each in (collector.push, collector.pop))
        regions = step_regions(push, pop, collector.coverage)
        return collector.tapped(self.target, self.patches, models, regions)
