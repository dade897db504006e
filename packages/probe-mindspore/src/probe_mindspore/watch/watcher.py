"""See the updates of a run and the calls of chosen Cells, and put their norms into the row of the step."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from attrs import define, field
from probe_format.watch import Column
from probe_runtime.collect import TrackedModule
from probe_runtime.session import Watch
from probe_runtime.watch import ParameterNames, WatchedRow, tensors_in

from probe_mindspore.hooks.modules import CellTable, models_in, patched_call, watched_calls
from probe_mindspore.module_kind import CELLS, ModuleKind
from probe_mindspore.patching.traced_jit import is_tracing
from probe_mindspore.tensors.tensor_view import DENSE, SPARSE

from .norms import elements_of, norms_of
from .updates import Updates

_WHOLE = (
    "Python called no optimizer in this step: a graph that MindSpore compiles with the update in it tells nobody. "
    "Weights (and updates) are read when the step ends"
)


@define(eq=False)
class MindSporeWatcher:
    """The hooks of one watched run: on optimizers from the first start() on, on Cells from start() to stop()."""

    watch: Watch
    module_kind: ModuleKind = CELLS
    table: CellTable = field(init=False)
    _names: ParameterNames = field(init=False)
    _updates: Updates = field(init=False)
    _hooks: ExitStack = field(factory=ExitStack)
    _calls: ExitStack = field(factory=ExitStack)
    _list: tuple[str, ...] = ()
    _has_updated: bool = False

    def __attrs_post_init__(self) -> None:
        self.table = CellTable(self.module_kind)
        models = partial(models_in, module_kind=self.module_kind)
        self._names = ParameterNames(models, partial(_named, self.module_kind))
        self._updates = Updates(self.watch.columns, self._names)
        self._hooks.enter_context(watched_calls(self._begins))

    def resume(self, model: Any) -> None:
        config = self.watch.config
        self._updates.wants_moments, self._updates.wants_updates = config.moments, config.updates
        if model is not None:
            is_new = self._names.add(model)
            if config.list != self._list:
                self.table = CellTable(self.module_kind)
            if is_new or config.list != self._list:
                self._list = config.list
                self._choose(model)
        if self.table.entries:
            self._calls.enter_context(patched_call(self.table, self._on_call, is_tracing))

    def pause(self) -> None:
        self._calls.close()

    def end(self, row: WatchedRow) -> None:
        """Read the weights where no update was seen, and no earlier step had one that was."""
        self.watch.note_uncalled(self.table.entries.values())
        self._has_updated |= bool(row.updates)
        if not self._has_updated:
            self.watch.unseen("gradients and moments", _WHOLE)
            self._updates.whole(row)

    def close(self) -> None:
        self._calls.close()
        self._hooks.close()
        self.table = CellTable(self.module_kind)

    def _choose(self, model: Any) -> None:
        """Track the Cells in whose names an entry of `list` is."""
        found = CellTable(self.module_kind)
        found.add_model(model)
        chosen = self.watch.chosen(self._list, found.entries.values())
        self.table.entries |= {id(entry.module): entry for entry in chosen}

    def _begins(self, cell: Any, args: tuple[Any, ...]) -> Callable[[], None] | None:
        """Take the beginning of a call of a Cell; return what is to be called at its end."""
        if (
            not isinstance(cell, self.module_kind.optimizers)
            or not hasattr(cell, "parameters")
            or is_tracing()
        ):
            return None
        given = args[0] if args and isinstance(args[0], (list, tuple)) else ()
        if self.watch.row is not None:
            self.watch.shelter("an optimizer's gradients", self._updates.before)(cell, given, self.watch.row)
        return partial(self._over, cell)

    def _over(self, optimizer: Any) -> None:
        self.watch.shelter("an optimizer's update", self._updates.after)(optimizer, self.watch.row)

    def _on_call(self, entry: TrackedModule, module: Any, args: Any, kwargs: Any, original: Any) -> Any:
        entry.called = True
        result = original(module, *args, **kwargs)
        if self.watch.row is not None:
            self.watch.shelter(entry.base, self._returned)(entry.base, result)
        return result

    def _returned(self, base: str, result: Any) -> None:
        row = self.watch.row
        assert row is not None
        layer = base.partition(".")[2].rpartition(".")[0]
        found = [
            (path, array)
            for path, t in tensors_in(result, (*DENSE, *SPARSE))
            if (array := elements_of(t)) is not None
        ]
        columns = [Column("activations", layer, path, array.size) for path, array in found]
        row.put([*map(self.watch.columns.number, columns)], norms_of([a for _, a in found]), largest=True)


def _named(module_kind: ModuleKind, model: Any) -> Iterator[tuple[str, Any]]:
    for path, cell in module_kind.walk(model):
        if not isinstance(cell, module_kind.optimizers):
            yield from ((f"{path}.{name}" if path else name, p) for name, p in module_kind.parameters(cell))
