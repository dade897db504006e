"""Run task `watch`: each step gives a row of numbers, in one file that grows, and no folder of its own."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field
from probe_format.excerpts import unsignalled
from probe_format.layout import watch_file
from probe_format.watch import WatchWriter, free_place
from probe_format.write import explain

from probe_runtime.collect.module_table import AnyModuleTable
from probe_runtime.config.config import Config
from probe_runtime.notice import notice
from probe_runtime.watch import WatchedRow

from .joint_step import JointStep
from .session import Session
from .step import RunningStep
from .token_gate import TokenGate
from .watcher import Watch, Watcher


@define(eq=False)
class WatchedStep(RunningStep):
    """One step of task `watch`. Its row is judged without a dump, and is small enough to need no limit."""

    watch: Watch
    watcher: Watcher
    number: int
    running: bool = False
    gate: TokenGate | None = None

    @property
    def directory(self) -> Path:
        return self.watch.file.path

    @property
    def table(self) -> AnyModuleTable:
        table: AnyModuleTable = self.watcher.table
        return table

    def resume(self, model: Any, gate: TokenGate | None) -> None:
        self.running = True
        self.watcher.resume(model)

    def pause(self) -> None:
        if self.running:
            self.running = False
            self.watcher.pause()

    def end(self) -> None:
        self.pause()
        if self.watch.row is not None:
            self.watch.shelter("the end of a step", self.watcher.end)(self.watch.row)
            self.watch.write(self.number)

    def abandon(self) -> None:
        self.pause()
        self.watch.row = None

    def mute(self) -> None:
        self.watch.row = None


@define(eq=False, slots=False)
class WatchSession(Session):
    """A session of task `watch`.

    about_file: what the header of the file says of the framework and of Probe.
    make: makes the framework's watcher.
    """

    make: Callable[[Watch], Watcher] = field(kw_only=True)
    about_file: dict[str, Any] = field(factory=dict, kw_only=True)
    _watch: Watch | None = None
    _watcher: Watcher | None = None
    _row: WatchedRow | None = None
    _is_hindered: bool = False

    def start(self, model: Any, token_range: Any, rank_id: Any = None) -> None:
        if token_range is not None:
            self._warn_once("token_range has no effect with task watch.")
        super().start(model, None, rank_id)

    def reconfigure(self, config: Config) -> None:
        super().reconfigure(config)
        if self._watch is not None:
            self._watch.config = config

    def close(self) -> None:
        super().close()
        watch, watcher, self._watch, self._watcher = self._watch, self._watcher, None, None
        if watch is not None and watcher is not None:
            watch.shelter("the end", watcher.close)()
            try:
                watch.file.close()
            except unsignalled(OSError) as error:
                self._warn_once(explain(error, self.config.dump_path))

    def _wants_model(self) -> str:
        return (
            "task watch names parameters as the model does, so it needs one: start(model=...) or "
            "PrecisionDebugger(model=...)."
        )

    def _begin(self, model: Any) -> RunningStep | None:
        if self._watch is None and not self._is_hindered:
            self._open()
        watch, watcher = self._watch, self._watcher
        if watch is None or watcher is None:
            self._is_hindered = True
            self._skip_step = self.step_number
            return None
        dumped = None
        if self._raised(self.step_number) is not None:  # the same step in files
            dumped, self._skip_step = super()._begin(model), None
        self._row = watch.row = WatchedRow(watch.columns)
        watched = WatchedStep(watch, watcher, self.step_number)
        return watched if dumped is None else JointStep((dumped, watched))

    def _over(self, run: RunningStep | None, report: Mapping[str, Any] | None) -> None:
        if self.when is not None and run is not None and self._row is not None:
            self.when.watched(self._row)
        super()._over(run, report)

    def _open(self) -> None:
        rank, config = self._rank(), self.config
        header = {
            "rank": rank,
            "task": config.task,
            "list": list(config.list),
            **self.about_file,
            **self.about,
        }
        header |= {"moments": config.moments, "updates": config.updates}
        try:
            path = free_place(config.dump_path, rank)
            if path is None:
                path = watch_file(config.dump_path, rank)
                if not config.overwrite:
                    notice(f"Probe: {path} is of an earlier run, so nothing is watched. Give another dump_path, or set "
                           "overwrite=True.")  # fmt: skip
                    return
                path.unlink()
            self._watch = Watch(config, WatchWriter(path, header))
            if self.when is not None:
                self.when.tell = self._watch.tell
        except unsignalled(OSError) as error:
            notice(f"Probe: nothing is watched: {explain(error, config.dump_path)}")
            return
        self._watcher = self.make(self._watch)
