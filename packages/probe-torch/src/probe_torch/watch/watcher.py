"""See the updates of a run and the calls of chosen modules, and put their norms into the row of the step.

The row also counts the updates that a loss scaler has skipped.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from attrs import define, field
from probe_format.watch import Column
from probe_runtime.patching import Held
from probe_runtime.session import Watcher
from probe_runtime.watch import Norms, ParameterNames, WatchedRow
from torch import nn
from torch.optim import optimizer as torchs

from probe_torch.aside import aside
from probe_torch.compiling import left_out
from probe_torch.hooks.modules import ModuleTable, models_in, patched_call, plain_path
from probe_torch.hooks.scalers import watched_scalers
from probe_torch.hooks.updates import before_updates
from probe_torch.optimizer_hooks import hooked

from .norms import norms_of
from .updates import Updates


@define(eq=False)
class TorchWatcher(Watcher):
    """Watch torch's optimizers and modules."""

    kinds = torch.Tensor
    _output_columns: dict[tuple[str, str], int] = field(factory=dict)
    _skips: list[Callable[[], bool]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.table = self.new_table()
        self.names = ParameterNames(models_in, _named)
        self.updates = Updates(self.watch.columns, self.names)
        before = self.watch.shelter("an optimizer's gradients", self._before)
        after = self.watch.shelter("an optimizer's update", self._after)
        self.hooks.enter_context(before_updates(before))
        self.hooks.enter_context(hooked(torchs._global_optimizer_post_hooks, left_out(after)))
        self.hooks.enter_context(watched_scalers(self._may_skip))

    def new_table(self) -> ModuleTable:
        return ModuleTable()

    def watched_modules(self) -> Held:
        return patched_call(self.table, self.on_call)

    def end(self, row: WatchedRow) -> None:
        """Count the updates that a scaler has skipped since the last row. The row has all other numbers already."""
        skips, self._skips = self._skips, []
        row.skipped += sum(skipped() for skipped in skips)
        self.watch.note_uncalled(self.table.entries.values())

    def _may_skip(self, skipped: Callable[[], bool]) -> None:
        if self.watch.row is not None:
            self._skips.append(skipped)

    @torch.no_grad()
    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if (row := self.watch.row) is not None:
            with aside():
                self.updates.before(optimizer, row, has_closure=_has_closure(args, kwargs))

    @torch.no_grad()
    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        with aside():
            self.updates.after(optimizer, self.watch.row, has_closure=_has_closure(args, kwargs))

    @torch.no_grad()
    def norms_in(self, layer: str, found: Iterable[tuple[str, Any]]) -> tuple[list[int], Norms]:
        with aside():
            found = [(path, t) for path, t in found if t.is_floating_point() or t.is_complex()]
            return [self._number(layer, path, t) for path, t in found], norms_of([t for _, t in found])

    def _number(self, layer: str, path: str, t: torch.Tensor) -> int:
        number = self._output_columns.get((layer, path))
        if number is None:
            column = Column("activations", layer, path, t.numel())
            number = self._output_columns[layer, path] = self.watch.columns.number(column)
        return number


def _named(model: nn.Module) -> Iterator[tuple[str, Any]]:
    return ((plain_path(path), p) for path, p in model.named_parameters(remove_duplicate=False))


def _has_closure(args: Any, kwargs: Any) -> bool:
    """Return whether an optimizer's step is given a closure, which computes the gradients within it."""
    return callable(kwargs.get("closure")) or any(map(callable, args[1:]))
