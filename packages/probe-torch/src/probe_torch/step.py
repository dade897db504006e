"""One dumped step: what is installed while it collects, and what it leaves on disk."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import define, field
from probe_format.config import Config
from probe_format.coverage import Coverage
from probe_format.select import NameFilter, fields_of
from probe_format.write import FORMAT_VERSION, RankWriter
from torch import nn

from .collectives import watched_waits
from .collector import Collector, Plan
from .modules import Model, ModuleEntry, ModuleTable, ParameterEntry, patched_call
from .recompute import watched_checkpoints
from .tensors import TensorLeaf, TensorOptions

__all__ = ["DumpedStep", "TokenGate"]

#: installs everything around a collector while it is on: patched functions, scopes, ...
Install = Callable[[Collector, TensorLeaf, tuple[nn.Module, ...]], contextlib.AbstractContextManager[Any]]


@define
class TokenGate:
    """Which calls of the model are collected when it generates tokens: numbers first to last, from 0."""

    first: int
    last: int
    number: int = -1

    def begins(self) -> bool:
        """The model is called again: whether this call is collected."""
        self.number += 1
        return self.first <= self.number <= self.last

    @property
    def over(self) -> bool:
        return self.number >= self.last


@define
class DumpedStep:
    """The state of one step that is dumped, from its first start() until step()."""

    config: Config
    directory: Path
    install: Install
    writer: RankWriter
    collector: Collector
    leaf: TensorLeaf
    table: ModuleTable = field(factory=ModuleTable)
    gate: TokenGate | None = None
    _installed: contextlib.ExitStack | None = None
    _hooked: dict[int, tuple[ParameterEntry, Any, Any]] = field(factory=dict)
    _models: dict[int, Any] = field(factory=dict)

    @classmethod
    def begin(
        cls, config: Config, directory: Path, install: Install, tool: str, about: Mapping[str, Any]
    ) -> DumpedStep:
        """Open the directory and its journal. Raises OSError when it cannot be written."""
        files = config.task == "tensor" or bool(config.tensor_list)
        header: dict[str, Any] = {
            "task": config.task,
            "level": config.level,
            "framework": "pytorch",
            "dump_data_dir": str(directory / "dump_tensor_data") if files else None,
            "format_version": FORMAT_VERSION,
            "tool": tool,
            **about,
        }
        if config.summary_mode != "statistics":
            header["checksum"] = "crc32" if config.summary_mode == "md5" else "xor64"
        deferred = config.async_dump or _accelerated()
        if deferred:
            header["deferred"] = True
        if not config.extra_info:
            header["extra_info"] = False
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
        names = NameFilter(config)
        plan = Plan(
            keep=fields_of(config),
            structure=config.task == "structure",
            files=config.task == "tensor",
            tensor_list=bool(config.tensor_list),
            construct=config.level != "L1" and config.extra_info,
            stacks=config.extra_info,
            max_faults=config.max_faults,
        )
        # The leaf writes through the collector's guarded append; neither is used before both exist.
        leaf = TensorLeaf(options, coverage, lambda event: collector._append(event))
        collector = Collector(plan, writer.append, leaf, coverage, names)
        return cls(config, directory, install, writer, collector, leaf)

    @property
    def running(self) -> bool:
        """Between start() and stop()."""
        return self._installed is not None

    def resume(self, model: Model | None, gate: TokenGate | None) -> None:
        """Collect from here on. Raises UsageError for a model that is none; nothing is installed then."""
        if model is not None and id(model) not in self._models and self.config.level != "L1":
            self.table.add_model(model)
            self._models[id(model)] = model
        roots = _roots(model) or tuple(self.table.roots.values())
        for root in roots:
            self.table.note_compiled(root)
        self.gate = gate
        with contextlib.ExitStack() as stack:
            if self.config.level != "L1":
                self._hook_parameters()
            if gate is not None:
                for root in roots[:1]:
                    self.table.entries[id(root)] = ModuleEntry("", root)
                stack.callback(lambda: [self.table.entries.pop(id(root), None) for root in roots[:1]])
            if self.table.entries:
                stack.enter_context(patched_call(self.table, self._on_call))
            stack.enter_context(watched_checkpoints(self.collector.segments))
            if self.config.level != "L0":
                stack.callback(self.collector.works.give_up)
                stack.enter_context(watched_waits(self.collector.works))
            stack.enter_context(self.install(self.collector, self.leaf, roots))
            self._installed = stack.pop_all()
        self.collector.on = gate is None and self.collector.alive

    def _on_call(
        self,
        entry: ModuleEntry,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        original: Callable[..., Any],
    ) -> Any:
        if entry.base:
            return self.collector.module(entry, module, args, kwargs, original)
        gate = self.gate
        assert gate is not None
        self.collector.on = gate.begins() and self.collector.alive
        try:
            return original(module, *args, **kwargs)
        finally:
            if gate.over:
                self.collector.on = False

    def _hook_parameters(self) -> None:
        if not self.collector.plan.keep.parameters_grad or self.collector.plan.structure:
            return
        for entry in self.table.parameters():
            p = entry.parameter
            if id(p) not in self._hooked and p.is_leaf:
                register: Any = p.register_post_accumulate_grad_hook
                handle = register(self.collector.parameter(entry))
                self._hooked[id(p)] = (entry, handle, _mark(p.grad))

    def pause(self) -> None:
        """Collect no more calls; every patch is undone. Gradients of the calls made go on being recorded."""
        self.collector.on = False
        if self._installed is not None:
            installed, self._installed = self._installed, None
            installed.close()

    def settle(self) -> dict[str, Any] | None:
        """Write the files with what there is; the journal stays. None when the collection broke off."""
        return self._finish(final=False)

    def end(self) -> dict[str, Any] | None:
        """The step is over: write the files, take every hook away. None when the collection broke off."""
        self.pause()
        try:
            return self._finish(final=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything without writing."""
        self.pause()
        self.collector.release()
        for _, handle, _ in self._hooked.values():
            handle.remove()
        self._hooked.clear()
        with contextlib.suppress(Exception):
            self.leaf.close()
        self.writer.close()

    def _finish(self, *, final: bool) -> dict[str, Any] | None:
        collector = self.collector
        if self.writer.forked:
            return None
        if final:
            self._late_gradients()
        collector.settle(self.table, final=final)
        if collector.broken is not None:
            return None
        try:
            report = self.writer.finish(final=final)
        except OSError as e:
            collector.break_off(f"the JSON files could not be written ({e})")
            return None
        if final:
            self._tell(report)
        return report

    def _late_gradients(self) -> None:
        """Gradients that came by no hook (FSDP sets them after its reduce-scatter): read where they are now."""
        for entry, _, before in self._hooked.values():
            grad = entry.parameter.grad
            if grad is not None and not self.collector.arrived(entry) and _mark(grad) != before:
                self.collector.parameter_gradient(entry, grad)

    def _tell(self, report: Mapping[str, Any]) -> None:
        """What the user must not miss, as warnings."""
        for item in report.get("unmatched", ()):
            near = ", ".join(item["nearest"]) or "no similar name"
            warnings.warn(
                f"Probe: {item['filter']} entry {item['value']!r} matched nothing in {self.directory}. "
                f"Nearest: {near}.",
                RuntimeWarning,
                stacklevel=2,
            )
        faults = sum(f["count"] for f in report.get("faults", ()))
        if faults:
            warnings.warn(
                f"Probe met {faults} faults of its own while recording; the run was not disturbed. "
                f"See {self.directory / 'dump_error_info.log'}.",
                RuntimeWarning,
                stacklevel=2,
            )


def _accelerated() -> bool:
    """Whether tensors may live on a device whose numbers are fetched in batches."""
    return (
        bool(torch.accelerator.is_available()) if hasattr(torch, "accelerator") else torch.cuda.is_available()
    )


def _mark(grad: torch.Tensor | None) -> tuple[int, int] | None:
    return None if grad is None else (id(grad), grad._version)


def _roots(model: Model | None) -> tuple[nn.Module, ...]:
    if model is None:
        return ()
    return (model,) if isinstance(model, nn.Module) else tuple(model)
