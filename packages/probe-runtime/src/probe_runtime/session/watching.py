"""Run task `watch`: each step gives a row of numbers, in one file that grows, and no folder of its own."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import define, field
from probe_format.errors import ConfigError, Problem
from probe_format.excerpts import error_text
from probe_format.layout import watch_file
from probe_format.suggest import nearest_names
from probe_format.watch import WatchWriter, free_place
from probe_format.write import Look, explain

from probe_runtime.collect.module_table import Table, TrackedModule
from probe_runtime.config.config import Config
from probe_runtime.notice import notice
from probe_runtime.watch import Allowance, Columns, WatchedRow

from .session import Session
from .token_gate import TokenGate

#: Steps at the beginning without an update, before that is said: a loss scaler skips some.
_PATIENCE = 10


def keep_to(config: Config, *, watch: bool) -> None:
    """Raise ConfigError when a configuration is of a session of the other sort. watch: whether this one watches."""
    if (config.task == "watch") != watch:
        what = f"cannot become {config.task!r} while the run goes on: {'' if watch else 'not '}watching began with it."
        raise ConfigError([Problem("task", what, "Start the run anew with it.")])


class Watcher(Protocol):
    """What sees the numbers of a run: the framework's package has one. Its errors end in `Watch.shelter`."""

    @property
    def table(self) -> Table:
        """Return the modules whose calls are looked at."""

    def resume(self, model: Any) -> None:
        """Look from now on. model: tracked from now on; None for the models known."""

    def pause(self) -> None:
        """Look at no more calls of modules; updates still count."""

    def end(self, row: WatchedRow) -> None:
        """Put what is still held into the row, which ends."""

    def close(self) -> None:
        """Take away every hook, and hold nothing any more."""


@define(eq=False)
class Watch:
    """The watch of one process, over all its steps.

    config: the configuration.
    file: takes the rows.
    columns: those of the file.
    row: of the step that runs; None between steps.
    """

    config: Config
    file: WatchWriter
    columns: Columns = field(factory=Columns)
    row: WatchedRow | None = None
    faults: int = 0
    _rows: int = 0
    _has_updated: bool = False
    _is_full: bool = False
    _unseen: set[str] = field(factory=set)

    def shelter(self, where: str, what: Callable[..., None]) -> Callable[..., None]:
        """Return a function that the framework may call: a fault is noted in the file, and the run goes on.

        After `max_faults` nothing is done any more. where: its place, for the note.
        """

        def sheltered(*args: Any) -> None:
            if self.faults >= self.config.max_faults:
                return
            try:
                what(*args)
            except Exception as error:
                self.fault(where, error)

        return sheltered

    def fault(self, where: str, error: Exception) -> None:
        """Note a fault of ours. Never raises."""
        self.faults += 1
        if self.faults == 1:
            notice(f"Probe met a fault while it watched {where}: {error_text(error)}. The run goes on.")
        try:
            self.file.fault(where, error_text(error))
        except OSError:
            self.faults = self.config.max_faults

    def chosen(self, wanted: Sequence[str], entries: Iterable[TrackedModule]) -> list[TrackedModule]:
        """Return the modules in whose names an entry of `list` is; an entry that is in none is said."""
        names = {f"{entry.base}.forward": entry for entry in entries}
        for part in wanted:
            if not any(part in name for name in names):
                near = ", ".join(nearest_names(part, names)) or "no similar name"
                notice(f"Probe: list entry {part!r} matched no module. Nearest: {near}.")
        return [entry for name, entry in names.items() if any(part in name for part in wanted)]

    def note_uncalled(self, entries: Iterable[TrackedModule]) -> None:
        """Say which chosen modules were not called in the first step."""
        if self._rows:
            return
        for entry in entries:
            if not entry.called:
                self.unseen(
                    f"what {entry.base} returns",
                    "Python did not call it in the first step: a compiled graph does not",
                )

    def unseen(self, what: str, why: str) -> None:
        """Say once, to the user and in the file, that something is not watched."""
        if what not in self._unseen:
            self._unseen.add(what)
            notice(f"Probe: {what}: not watched. {why}.")
            with contextlib.suppress(OSError):
                self.file.unseen(what, why)

    def write(self, step: int) -> None:
        """End the row of a step. One that cannot be written is said once; the next is tried again."""
        row, self.row = self.row, None
        if row is None:
            return
        try:
            row.write(self.file, step)
        except OSError as error:
            if not self._is_full:
                self._is_full = True
                why = explain(error, self.config.dump_path)
                notice(
                    f"Probe: step {step} is not in {self.file.path}. {why} The run goes on, and so does the watch."
                )
        self._rows += 1
        self._has_updated |= bool(row.updates or row.skipped)
        if self._rows == _PATIENCE and not self._has_updated:
            notice(
                f"Probe: {_PATIENCE} steps are over, and no update was seen in them, so gradients and weights are not "
                "watched. step() is to come after the optimizer's step. Only optimizers of the framework are seen."
            )


@define(eq=False)
class WatchedStep:
    """One step that is watched, as a session sees it."""

    watch: Watch
    watcher: Watcher
    number: int
    running: bool = False
    gate: TokenGate | None = None
    directories: tuple[Path, ...] = ()

    @property
    def directory(self) -> Path:
        return self.watch.file.path

    @property
    def table(self) -> Table:
        return self.watcher.table

    @property
    def looks(self) -> Mapping[Path, Look]:
        return {}

    def watch_for(self, moments: frozenset[str]) -> None:
        """Do nothing: `when` is refused with task watch."""

    def limit(self, allowance: Allowance) -> None:
        """Do nothing: `max_bytes` has no effect with task watch, whose rows are small."""

    def resume(self, model: Any, gate: TokenGate | None) -> None:
        self.running = True
        self.watcher.resume(model)

    def pause(self) -> None:
        if self.running:
            self.running = False
            self.watcher.pause()

    def write_files(self) -> None:
        return None

    def end(self) -> None:
        self.pause()
        if self.watch.row is not None:
            self.watch.shelter("the end of a step", self.watcher.end)(self.watch.row)
            self.watch.write(self.number)

    def abandon(self) -> None:
        self.pause()
        self.watch.row = None

    def hand_on(self) -> None:
        return None

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
            except OSError as error:
                self._warn_once(explain(error, self.config.dump_path))

    def _begin(self, model: Any) -> WatchedStep | None:
        if self._watch is None and not self._is_hindered:
            self._open()
        watch, watcher = self._watch, self._watcher
        if watch is None or watcher is None:
            self._is_hindered = True
            self._skip_step = self.step_number
            return None
        watch.row = WatchedRow(watch.columns)
        return WatchedStep(watch, watcher, self.step_number)

    def _open(self) -> None:
        rank, config = self._rank(), self.config
        header = {"rank": rank, "task": "watch", "list": list(config.list), **self.about_file, **self.about}
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
        except OSError as error:
            notice(f"Probe: nothing is watched: {explain(error, config.dump_path)}")
            return
        self._watcher = self.make(self._watch)
