"""One dumped step: what is installed while it collects, and what it leaves on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import define, field
from probe_format.write import RankWriter

from probe_runtime.collect.collector import Collector
from probe_runtime.collect.module_table import Table, TrackedModule
from probe_runtime.collect.recorder import Args, Kwargs
from probe_runtime.config.config import Config
from probe_runtime.describe.leaf import Leaf
from probe_runtime.notice import notice

from .token_gate import TokenGate

__all__ = ["DumpedStep", "Install", "Step"]

#: (step, models) -> what puts every tap in place while it is open, and takes them away when it is left
Install = Callable[["DumpedStep", tuple[Any, ...]], contextlib.AbstractContextManager[Any]]


def _nothing() -> None:
    """There is nothing to do."""


def _nowhere(kind: str, value: str) -> bool:
    """There is no other part of this step."""
    return False


class Step(Protocol):
    """What a session does with a step; `DumpedStep` says what each means."""

    @property
    def directory(self) -> Path:
        """Where the dump is."""

    @property
    def table(self) -> Table:
        """The modules that are tracked."""

    @property
    def gate(self) -> TokenGate | None:
        """The calls of the model that are collected, where not all are."""

    @property
    def running(self) -> bool:
        """Between start() and stop()."""

    def resume(self, model: Any, gate: TokenGate | None) -> None:
        """Collect from here on."""

    def pause(self) -> None:
        """Collect no more calls."""

    def settle(self) -> dict[str, Any] | None:
        """Write the files with what there is."""

    def end(self) -> dict[str, Any] | None:
        """The step is over: write the files, take every hook away."""

    def abandon(self) -> None:
        """Let go of everything without writing."""

    def mute(self) -> None:
        """Record nothing more, in this process."""


@define
class DumpedStep:
    """The state of one step that is dumped, from its first start() until step().

    late: called before the last files are written, for what came by no hook. wait: returns when what was called
    so far has been recorded, where the framework computes behind Python. let_go: takes away the hooks that stay
    over stop(). elsewhere(kind, value): whether a filter's entry that matches nothing here is no matter, for another
    part of the step has seen to it.
    """

    config: Config
    directory: Path
    install: Install
    writer: RankWriter
    collector: Collector
    leaf: Leaf
    table: Table
    late: Callable[[], None] = _nothing
    wait: Callable[[], None] = _nothing
    let_go: Callable[[], None] = _nothing
    elsewhere: Callable[[str, str], bool] = _nowhere
    gate: TokenGate | None = None
    _installed: contextlib.ExitStack | None = None
    _models: dict[int, Any] = field(factory=dict)

    @property
    def running(self) -> bool:
        """Between start() and stop()."""
        return self._installed is not None

    def resume(self, model: Any, gate: TokenGate | None) -> None:
        """Collect from here on. Raises UsageError for a model that is none; nothing is installed then."""
        if model is not None and id(model) not in self._models and self.config.level != "L1":
            self.table.add_model(model)
            self._models[id(model)] = model
        roots = self.table.roots_of(model) or tuple(self.table.roots.values())
        self.gate = gate
        with contextlib.ExitStack() as stack:
            if gate is not None:
                for root in roots[:1]:
                    self.table.entries[id(root)] = TrackedModule("", root)
                stack.callback(lambda: [self.table.entries.pop(id(root), None) for root in roots[:1]])
            stack.enter_context(self.install(self, roots))
            self._installed = stack.pop_all()
        if gate is None:
            self.collector.stream.open()
        else:
            self.collector.stream.pause()

    def on_call(
        self, entry: TrackedModule, module: Any, args: Args, kwargs: Kwargs, original: Callable[..., Any]
    ) -> Any:
        """The tap of the table's modules: records the call, or counts it where it is the model that generates."""
        if entry.base:
            return self.collector.module(entry, module, args, kwargs, original)
        gate, stream = self.gate, self.collector.stream
        assert gate is not None
        self.wait()
        if gate.begins():
            stream.open()
        else:
            stream.pause()
        try:
            return original(module, *args, **kwargs)
        finally:
            if gate.over:
                self.wait()
                stream.pause()

    def pause(self) -> None:
        """Collect no more calls; every patch is undone. Gradients of the calls made go on being recorded."""
        if self.running and not self.writer.forked:
            self.wait()
        self.collector.stream.pause()
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
        self.let_go()
        with contextlib.suppress(Exception):
            self.leaf.close()
        self.writer.close()

    def mute(self) -> None:
        """Record nothing more, in this process."""
        self.collector.stream.end()

    def _finish(self, *, final: bool) -> dict[str, Any] | None:
        collector = self.collector
        if self.writer.forked:
            return None
        self.wait()
        if final:
            self.late()
        collector.flush_numbers(final=final)
        if collector.stream.broken is not None:
            return None
        try:
            report = self._written(final=final)
        except OSError as e:
            collector.stream.break_off(f"the JSON files could not be written ({e})")
            return None
        if final:
            self._tell(report)
        return report

    def _written(self, *, final: bool) -> dict[str, Any]:
        """The files, with the counts of what is in them; without new counts if those fail. Raises OSError."""
        collector = self.collector
        try:
            return self.writer.finish(final=final, last=lambda: collector.tally(self.table))
        except OSError:
            raise
        except Exception as e:
            collector.stream.fault("the end of the step", "coverage", e)
        return self.writer.finish(final=final)

    def _tell(self, report: Mapping[str, Any]) -> None:
        """What the user must not miss, as warnings."""
        for item in report.get("unmatched", ()):
            if self.elsewhere(item["filter"], item["value"]):
                continue
            near = ", ".join(item["nearest"]) or "no similar name"
            notice(
                f"Probe: {item['filter']} entry {item['value']!r} matched nothing in {self.directory}. "
                f"Nearest: {near}."
            )
        faults = sum(f["count"] for f in report.get("faults", ()))
        if faults:
            notice(
                f"Probe met {faults} faults of its own while recording; the run was not disturbed. "
                f"See {self.directory / 'dump_error_info.log'}."
            )
