"""See the updates of a run and the calls of chosen modules, and put their norms into the row of the step."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from attrs import define, field
from probe_format.watch import Column
from probe_runtime.collect import TrackedModule
from probe_runtime.session import Watch
from probe_runtime.watch import ParameterNames, WatchedRow, tensors_in
from torch import nn
from torch.optim import optimizer as torchs

from probe_torch.aside import aside
from probe_torch.compiling import left_out
from probe_torch.hooks.modules import ModuleTable, models_in, patched_call, plain_path
from probe_torch.hooks.updates import before_updates

from .norms import norms_of
from .updates import Updates


@define(eq=False)
class TorchWatcher:
    """The hooks of one watched run: on optimizers from the first start() on, on modules from start() to stop()."""

    watch: Watch
    table: ModuleTable = field(factory=ModuleTable)
    _names: ParameterNames = field(factory=lambda: ParameterNames(models_in, _named))
    _updates: Updates = field(init=False)
    _hooks: ExitStack = field(factory=ExitStack)
    _calls: ExitStack = field(factory=ExitStack)
    _list: tuple[str, ...] = ()
    _output_columns: dict[tuple[str, str], int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._updates = Updates(self.watch.columns, self._names)
        before = self.watch.shelter("an optimizer's gradients", self._before)
        after = self.watch.shelter("an optimizer's update", self._after)
        self._hooks.enter_context(before_updates(before))
        hook = torchs.register_optimizer_step_post_hook(left_out(after))
        self._hooks.callback(hook.remove)

    def resume(self, model: Any) -> None:
        config = self.watch.config
        self._updates.wants_moments, self._updates.wants_updates = config.moments, config.updates
        if model is not None:
            is_new = self._names.add(model)
            if config.list != self._list:
                self.table = ModuleTable()
            if is_new or config.list != self._list:
                self._list = config.list
                self._choose(model)
        if self.table.entries:
            self._calls.enter_context(patched_call(self.table, self._on_call))

    def pause(self) -> None:
        self._calls.close()

    def end(self, row: WatchedRow) -> None:
        """Do nothing more: every number is in the row at once."""
        self.watch.note_uncalled(self.table.entries.values())

    def close(self) -> None:
        self._calls.close()
        self._hooks.close()
        self.table = ModuleTable()

    def _choose(self, model: Any) -> None:
        """Track the modules in whose names an entry of `list` is."""
        found = ModuleTable()
        found.add_model(model)
        chosen = self.watch.chosen(self._list, found.entries.values())
        self.table.entries |= {id(entry.module): entry for entry in chosen}

    @torch.no_grad()
    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if (row := self.watch.row) is not None:
            with aside():
                self._updates.before(optimizer, row, has_closure=_has_closure(args, kwargs))

    @torch.no_grad()
    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        with aside():
            self._updates.after(optimizer, self.watch.row, has_closure=_has_closure(args, kwargs))

    def _on_call(self, entry: TrackedModule, module: Any, args: Any, kwargs: Any, original: Any) -> Any:
        entry.called = True
        result = original(module, *args, **kwargs)
        if self.watch.row is not None:
            self.watch.shelter(entry.base, self._returned)(entry.base, result)
        return result

    @torch.no_grad()
    def _returned(self, base: str, result: Any) -> None:
        row = self.watch.row
        assert row is not None
        layer = base.partition(".")[2].rpartition(".")[0]
        with aside():
            found = [
                (path, t)
                for path, t in tensors_in(result, torch.Tensor)
                if t.is_floating_point() or t.is_complex()
            ]
            numbers = [self._number(layer, path, t) for path, t in found]
            row.put(numbers, norms_of([t for _, t in found]), largest=True)

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
