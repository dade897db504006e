"""See the updates of a run and the calls of chosen Cells, and put their norms into the row of the step."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from attrs import define
from probe_format.watch import Column
from probe_runtime.patching import Held
from probe_runtime.session import Watcher
from probe_runtime.watch import Norms, ParameterNames, WatchedRow

from probe_mindspore.hooks.modules import CellTable, models_in, patched_call, watched_calls
from probe_mindspore.module_kind import CELLS, ModuleKind
from probe_mindspore.patching.traced_jit import is_tracing
from probe_mindspore.tensors.tensor_view import DENSE, SPARSE

from .norms import count_of, elements_of, norms_of
from .updates import Updates

_WHOLE = (
    "Python called no optimizer in this step: a graph that MindSpore compiles with the update in it tells nobody. "
    "Weights (and updates) are read when the step ends"
)


@define(eq=False)
class MindSporeWatcher(Watcher):
    """Watch MindSpore's optimizers and Cells."""

    kinds = (*DENSE, *SPARSE)
    module_kind: ModuleKind = CELLS
    _has_updated: bool = False

    def __attrs_post_init__(self) -> None:
        self.table = self.new_table()
        models = partial(models_in, module_kind=self.module_kind)
        self.names = ParameterNames(models, partial(_named, self.module_kind))
        self.updates = Updates(self.watch.columns, self.names)
        self.hooks.enter_context(watched_calls(self._begins))

    def new_table(self) -> CellTable:
        return CellTable(self.module_kind)

    def watched_modules(self) -> Held:
        return patched_call(self.table, self.on_call, is_tracing)

    def end(self, row: WatchedRow) -> None:
        """Read the weights where Python has called no optimizer, neither in this step nor in an earlier one."""
        self.watch.note_uncalled(self.table.entries.values())
        self._has_updated |= bool(row.updates)
        if not self._has_updated:
            self.watch.unseen("gradients and moments", _WHOLE)
            self.updates.whole(row)

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
            self.watch.shelter("an optimizer's gradients", self.updates.before)(cell, given, self.watch.row)
        return partial(self._over, cell)

    def _over(self, optimizer: Any) -> None:
        self.watch.shelter("an optimizer's update", self.updates.after)(optimizer, self.watch.row)

    def norms_in(self, layer: str, found: Iterable[tuple[str, Any]]) -> tuple[list[int], Norms]:
        read = [(path, t, elements_of(t)) for path, t in found]
        columns = [Column("activations", layer, path, count_of(t, array)) for path, t, array in read]
        return [*map(self.watch.columns.number, columns)], norms_of([array for _, _, array in read])


def _named(module_kind: ModuleKind, model: Any) -> Iterator[tuple[str, Any]]:
    for path, cell in module_kind.walk(model):
        if not isinstance(cell, module_kind.optimizers):
            yield from ((f"{path}.{name}" if path else name, p) for name, p in module_kind.parameters(cell))
