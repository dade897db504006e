"""Dump one step: install hooks and patches while it collects, and write its files."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from attrs import define, field
from probe_format.excerpts import unsignalled
from probe_format.write import Look, RankWriter

from probe_runtime.collect.collector import Collector
from probe_runtime.collect.module_table import AnyModuleTable, TrackedModule
from probe_runtime.collect.recorder import Args, Kwargs
from probe_runtime.collect.thread_state import other_threads
from probe_runtime.config.config import Config
from probe_runtime.describe.leaf import Leaf
from probe_runtime.describe.run_error import RunError
from probe_runtime.notice import notice
from probe_runtime.patching.places import unseen
from probe_runtime.patching.registry import lock
from probe_runtime.watch import Allowance

from .token_gate import TokenGate

#: Takes (step, models) and returns a context that puts every tap in place, and takes them away when it is left.
Install = Callable[["DumpingStep", tuple[Any, ...]], contextlib.AbstractContextManager[Any]]


class _RoomForFrames:
    """Double the recursion limit while a step is dumped: a module's call has fewer frames of Probe's than of its own.

    All threads share the limit. Lowering it would end the process where a thread is deeper than that, so it stays
    raised then.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._limits = 0, 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with lock:
            self._holders += 1
            if (before := sys.getrecursionlimit()) != self._limits[1]:
                self._limits = before, 2 * before
                sys.setrecursionlimit(2 * before)
        try:
            yield
        finally:
            with lock:
                self._holders -= 1
                if not self._holders:
                    self._give_back()

    def _give_back(self) -> None:
        before, raised = self._limits
        if sys.getrecursionlimit() != raised:  # the run has set another one
            self._limits = 0, 0
        elif not any(_is_deeper(frame, before // 2) for _, frame in other_threads()):
            with contextlib.suppress(RecursionError):  # this thread is deeper than that now
                sys.setrecursionlimit(before)
                self._limits = 0, 0


def _is_deeper(frame: FrameType | None, frames: int) -> bool:
    """Return whether at least ``frames`` frames are around ``frame``."""
    while frame is not None and frames:
        frame, frames = frame.f_back, frames - 1
    return frame is not None


_room_for_frames = _RoomForFrames()


class RunningStep:
    """A step as a session runs it: a `DumpingStep`, or several joined into one. The methods here dump nothing."""

    gate: TokenGate | None
    """Which calls of the model are collected; None for all."""

    @property
    def directory(self) -> Path:
        """Return the rank folder of the dump."""
        raise NotImplementedError

    @property
    def directories(self) -> tuple[Path, ...]:
        """Return the rank folders that the step has made so far, one for each of its parts."""
        return ()

    @property
    def table(self) -> AnyModuleTable:
        """Return the modules that are tracked."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        """Return whether the step is between start() and stop()."""
        raise NotImplementedError

    @property
    def looks(self) -> Mapping[Path, Look]:
        """Return rank folder -> what was seen of its records since `watch_for`."""
        return {}

    def watch_for(self, moments: frozenset[str]) -> None:
        """Look at the records when they are written. moments: see `Look`."""

    def limit(self, allowance: Allowance) -> None:
        """Write no more than the allowance, and say in the dump what that leaves out. Call this before `resume`."""

    def resume(self, model: Any, gate: TokenGate | None) -> None:
        """Collect from now on. Raises UsageError when the model is wrong, before anything is installed.

        model: tracked from now on; None for the models known.
        gate: which calls of the model are collected; None for all.
        """

    def pause(self) -> None:
        """Collect no more calls, and undo every patch. Gradients of the calls made are still recorded."""

    def write_files(self) -> dict[str, Any] | None:
        """Write the files with what is recorded so far; the journal stays. Return None when collecting broke off."""
        return None

    def end(self) -> dict[str, Any] | None:
        """End the step: write the files, remove every hook. Return None when collecting broke off."""
        return None

    def abandon(self) -> None:
        """Release everything without writing."""

    def hand_on(self) -> None:
        """Raise the error of the run that was met and not raised yet, if there is one."""

    def mute(self) -> None:
        """Record nothing more in this process."""


@define
class DumpingStep(RunningStep):
    """The state of one step that is dumped, from its first start() until step().

    config: the configuration.
    directory: the rank folder of the dump.
    install: puts the hooks and patches in place between start() and stop().
    writer: writes the journal and the files.
    collector: the taps.
    leaf: describes tensors.
    table: the modules that are tracked.
    late: called before the last files are written, for what no hook brings.
    wait: returns when all calls so far are recorded, where the framework computes behind Python.
    remove_hooks: removes the hooks that stay after stop(), for gradients.
    matched_elsewhere: takes (filter, entry) and returns whether another part of the step reports this entry, so that
        it need not match anything here.
    gate: which calls of the model are collected; None for all.
    allowance: what it may write, where that is limited.
    """

    config: Config
    directory: Path
    install: Install
    writer: RankWriter
    collector: Collector
    leaf: Leaf
    table: AnyModuleTable
    late: Callable[[], None] = lambda: None
    wait: Callable[[], None] = lambda: None
    remove_hooks: Callable[[], None] = lambda: None
    matched_elsewhere: Callable[[str, str], bool] = lambda kind, value: False
    gate: TokenGate | None = None
    allowance: Allowance | None = None
    _installed: contextlib.ExitStack | None = None
    _models: dict[int, Any] = field(factory=dict)

    @property
    def directories(self) -> tuple[Path, ...]:
        return (self.directory,) if self.writer.begun else ()

    @property
    def looks(self) -> Mapping[Path, Look]:
        return {each: self.writer.look or Look() for each in self.directories}

    def watch_for(self, moments: frozenset[str]) -> None:
        self.writer.look = Look(moments)

    @property
    def running(self) -> bool:
        return self._installed is not None

    def limit(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self.leaf.limit(allowance.within)
        self.writer.limit(allowance.add_journal(lambda: self.writer.journal_bytes))
        if allowance.over and not allowance.is_told:
            allowance.is_told = True
            self.collector.stream.break_off(allowance.over)
        elif allowance.over:
            self.collector.stream.end()
        if allowance.is_small:
            self._end_files()
        allowance.no_more_files.append(self._end_files)

    def _end_files(self) -> None:
        plan = self.collector.plan
        plan.files = plan.tensor_list = False

    def resume(self, model: Any, gate: TokenGate | None) -> None:
        if model is not None and id(model) not in self._models and self.config.level != "L1":
            self.table.add_model(model)
            self._models[id(model)] = model
        roots = self.table.roots_of(model) or tuple(self.table.roots.values())
        if self.collector.plan.parameters_grad:
            self.table.begin()
        self.gate = gate
        unseen.clear()  # calls that were missed before do not belong to this step
        with contextlib.ExitStack() as stack:
            if gate is not None:
                for root in roots[:1]:
                    self.table.entries[id(root)] = TrackedModule("", root)
                stack.callback(lambda: [self.table.entries.pop(id(root), None) for root in roots[:1]])
            stack.enter_context(_room_for_frames())
            stack.enter_context(self.install(self, roots))
            self._installed = stack.pop_all()
        if gate is None:
            self.collector.stream.open()
        else:
            self.collector.stream.pause()

    @property
    def tap(self) -> Callable[..., Any]:
        """Return what takes the calls of tracked modules until the next stop(), with the arguments of `on_call`."""
        return self.collector.recorder.module if self.gate is None else self.on_call

    def on_call(
        self, entry: TrackedModule, module: Any, args: Args, kwargs: Kwargs, original: Callable[..., Any]
    ) -> Any:
        """Record a call of a tracked module, or count it for the gate where it is the model that generates tokens."""
        if entry.base:
            return self.collector.recorder.module(entry, module, args, kwargs, original)
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
        if self.running and not self.writer.forked:
            self.wait()
        self.collector.stream.pause()
        if self._installed is not None:
            installed, self._installed = self._installed, None
            installed.close()
            try:
                self.table.note_changes()
                self.table.note_parameters(have_gradients=self.collector.has_gradients)
            except unsignalled(Exception) as e:
                self.collector.stream.fault("stop()", "modules and parameters that came or left", e)
            if self.gate is not None and (short := self.gate.shortfall):
                self.collector.coverage.unseen(*short)
                if self.gate.number < self.gate.first:
                    notice(f"Probe: {short[1]}, so nothing is recorded of them.")
            while unseen:
                self.collector.coverage.unseen(*unseen.popitem())

    def write_files(self) -> dict[str, Any] | None:
        return self._finish(final=False)

    def end(self) -> dict[str, Any] | None:
        self.pause()
        try:
            return self._finish(final=True)
        finally:
            self.abandon()

    def abandon(self) -> None:
        self.pause()
        self.collector.release()
        self.remove_hooks()
        with contextlib.suppress(Exception):
            self.leaf.close()
        self.writer.close()

    def hand_on(self) -> None:
        try:
            self.leaf.hand_on()
            if self.collector.recorder.alarm is not None:
                self.collector.recorder.alarm.hand_on()
        except RunError as e:
            raise e.error from e

    def mute(self) -> None:
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
        except unsignalled(OSError) as e:
            collector.stream.break_off(f"the JSON files could not be written ({e})")
            return None
        if final:
            self._warn(report)
        alarm = collector.recorder.alarm
        if alarm is not None and report.get("first_non_finite"):
            alarm.written(self.directory)
        return report

    def _written(self, *, final: bool) -> dict[str, Any]:
        """Write the files with their counts, or without new counts if counting fails.

        Raises OSError when they cannot be written.
        """
        collector = self.collector
        for what, why in () if self.allowance is None else self.allowance.notes.items():
            collector.coverage.unseen(what, why)
        try:
            return self.writer.finish(final=final, last=lambda: collector.tally(self.table))
        except OSError:
            raise
        except unsignalled(Exception) as e:
            collector.stream.fault("the end of the step", "coverage", e)
        return self.writer.finish(final=final)

    def _warn(self, report: Mapping[str, Any]) -> None:
        for item in report.get("unmatched", ()):
            if self.matched_elsewhere(item["filter"], item["value"]):
                continue
            near = ", ".join(item["nearest"]) or "no similar name"
            notice(
                f"Probe: {item['filter']} entry {item['value']!r} matched nothing in {self.directory}. "
                f"Nearest: {near}."
            )
        faults = sum(f["count"] for f in report.get("faults", ()))
        if faults:
            notice(
                f"Probe met {faults} faults while recording; the run was not disturbed. "
                f"See {self.directory / 'dump_error_info.log'}."
            )
