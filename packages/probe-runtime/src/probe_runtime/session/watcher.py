"""Keep the watch of a run (task `watch`): write each step's row, and note faults and what is not watched.

A row holds a few numbers of one step, such as norms of gradients, weights, and what modules return. Provide the base
of each framework's watcher, whose hooks fill the rows.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, ClassVar

from attrs import define, field
from probe_format.excerpts import error_text, unsignalled
from probe_format.suggest import nearest_names
from probe_format.watch import WatchWriter
from probe_format.write import explain

from probe_runtime.collect.module_table import AnyModuleTable, TrackedModule
from probe_runtime.config.config import Config
from probe_runtime.notice import Notices, notice
from probe_runtime.patching.switch import muted
from probe_runtime.watch import Columns, Norms, ParameterNames, Trigger, WatchedRow, tensors_in

#: Steps at the beginning without an update, before that is said: a loss scaler skips some.
_PATIENCE = 10


@define(eq=False)
class Watch:
    """The watch of one process, over all its steps.

    config: the configuration.
    file: takes the rows.
    columns: the columns of the file.
    row: the row of the step that runs; None between steps.
    """

    config: Config
    file: WatchWriter
    columns: Columns = field(factory=Columns)
    row: WatchedRow | None = None
    faults: int = 0
    _rows: int = 0
    _has_updated: bool = False
    _notices: Notices = field(factory=Notices)

    def shelter(self, where: str, what: Callable[..., None]) -> Callable[..., None]:
        """Return a function that the framework may call: a fault is noted in the file, and the run goes on.

        After `max_faults` nothing is done any more. where: its place, for the note.
        """

        def sheltered(*args: Any) -> None:
            if self.faults >= self.config.max_faults:
                return
            try:
                with muted():  # the step may be dumped as well
                    what(*args)
            except unsignalled(Exception) as error:
                self.fault(where, error)

        return sheltered

    def fault(self, where: str, error: Exception) -> None:
        """Note a fault of ours. Never raises."""
        self.faults += 1
        if self.faults == 1:
            notice(f"Probe met a fault while it watched {where}: {error_text(error)}. The run goes on.")
        try:
            self.file.fault(where, error_text(error))
        except unsignalled(OSError):
            self.faults = self.config.max_faults

    def chosen(self, wanted: Sequence[str], entries: Iterable[TrackedModule]) -> list[TrackedModule]:
        """Return the modules whose names contain an entry of ``wanted``; warn of each entry that no name contains.

        wanted: the key `list` of the configuration.
        """
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
                    "no call of it was seen in the first step: a compiled graph makes none",
                )

    def unseen(self, what: str, why: str) -> None:
        """Say once, to the user and in the file, that something is not watched."""
        if self._notices.tell(f"{what}: not watched. {why}.", what):
            with contextlib.suppress(OSError):
                self.file.unseen(what, why)

    def tell(self, triggers: Sequence[Trigger]) -> None:
        """Write triggers of one step."""
        for each in triggers:
            with contextlib.suppress(OSError):
                self.file.trigger(each.step, each.told)

    def write(self, step: int) -> None:
        """End the row of a step, and write it.

        The user is told once that a row cannot be written; the next one is tried again.
        """
        row, self.row = self.row, None
        if row is None:
            return
        for column in [self.columns.known[number] for number in row.unread]:
            self.unseen(
                f"{column.kind} of {column.name}", "A tensor of its class has no numbers that can be read"
            )
        try:
            row.write(self.file, step)
        except unsignalled(OSError) as error:
            why = explain(error, self.config.dump_path)
            text = f"step {step} is not in {self.file.path}. {why} The run goes on, and so does the watch."
            self._notices.tell(text, "a row that is not written")
        self._rows += 1
        self._has_updated |= bool(row.updates or row.skipped)
        if self._rows == _PATIENCE and not self._has_updated:
            notice(
                f"Probe: {_PATIENCE} steps are over, and no update was seen in them, so gradients and weights are not "
                "watched. step() is to come after the optimizer's step. Only optimizers of the framework are seen."
            )


@define(eq=False)
class Watcher(ABC):
    """The hooks of one watched run: on optimizers from the first start() on, on modules from start() to stop().

    Each framework's package has a subclass, whose errors end in `Watch.shelter`.

    watch: gets faults, and has the row.
    table: an `AnyModuleTable` of the modules whose calls are watched.
    names: the names of the parameters.
    updates: reads the optimizers' updates; its ``wants_moments`` and ``wants_updates`` are the configuration's.
    hooks: the hooks that stay until the watch is closed.
    kinds: the classes of tensors.
    """

    kinds: ClassVar[type | tuple[type, ...]]

    watch: Watch
    table: Any = field(init=False)
    names: ParameterNames = field(init=False)
    updates: Any = field(init=False)
    hooks: ExitStack = field(factory=ExitStack, init=False)
    _calls: ExitStack = field(factory=ExitStack, init=False)
    _list: tuple[str, ...] = field(default=(), init=False)

    def resume(self, model: Any) -> None:
        """Look from now on. model: tracked from now on; None for the models known."""
        config = self.watch.config
        self.updates.wants_moments, self.updates.wants_updates = config.moments, config.updates
        if model is not None:
            is_new, is_other = self.names.add(model), config.list != self._list
            if is_other:
                self.table, self._list = self.new_table(), config.list
            if is_new or is_other:
                found = self.new_table()
                found.add_model(model)
                chosen = self.watch.chosen(self._list, found.entries.values())
                self.table.entries |= {id(entry.module): entry for entry in chosen}
        if self.table.entries:
            self._calls.enter_context(self.watched_modules())

    def pause(self) -> None:
        """Look at no more calls of modules; updates still count."""
        self._calls.close()

    def close(self) -> None:
        """Take away every hook, and hold nothing any more."""
        self._calls.close()
        self.hooks.close()
        self.table = self.new_table()

    def on_call(self, entry: TrackedModule, module: Any, args: Any, kwargs: Any, original: Any) -> Any:
        """Make a call of a tracked module, and put what it returns into the row."""
        entry.called = True
        result = original(module, *args, **kwargs)
        if self.watch.row is not None:
            self.watch.shelter(entry.base, self._returned)(entry.base, result)
        return result

    def _returned(self, base: str, result: Any) -> None:
        assert self.watch.row is not None
        layer = base.partition(".")[2].rpartition(".")[0]
        note = partial(self.watch.unseen, f"a part of what {base} returns")
        self.watch.row.put(*self.norms_in(layer, tensors_in(result, self.kinds, note)), largest=True)

    @abstractmethod
    def new_table(self) -> AnyModuleTable:
        """Return a table without modules."""

    @abstractmethod
    def watched_modules(self) -> AbstractContextManager[Any]:
        """Return a context in which the calls of the table's modules go through `on_call`."""

    @abstractmethod
    def norms_in(self, layer: str, found: Iterable[tuple[str, Any]]) -> tuple[list[int], Norms]:
        """Return the columns and the norms of what a module returned.

        layer: the module's path.
        found: (path, tensor) of each tensor in what it returned.
        """

    @abstractmethod
    def end(self, row: WatchedRow) -> None:
        """Put the numbers that no hook brings into the row, before it is written."""
