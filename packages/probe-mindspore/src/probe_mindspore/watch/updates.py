"""Read the norms of every optimizer update: of gradients, weights, moments, and of what the update changed."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from attrs import define, field
from mindspore import Parameter
from probe_format.watch import Column, Kind
from probe_runtime.watch import Columns, ParameterNames, WatchedRow

from .norms import changes_of, count_of, elements_of, norms_of

Name = tuple[str, str]


@define(eq=False)
class Updates:
    """Read every optimizer's updates.

    wants_moments, wants_updates: whether moments, and what updates changed, are read too.
    """

    columns: Columns
    names: ParameterNames
    wants_moments: bool = False
    wants_updates: bool = False
    _copies: dict[Name, Any] = field(factory=dict)

    def before(self, optimizer: Any, given: Sequence[Any], row: WatchedRow) -> None:
        """Read the tensors that an update gets. given: the gradients that the optimizer is called with."""
        parameters = list(optimizer.parameters)
        names = self._named(optimizer, parameters)
        row.updates += 1
        if len(given) == len(parameters):
            self._put(row, "gradients", zip(names, given, strict=True))
        self._put(row, "weights", zip(names, parameters, strict=True))
        if self.wants_moments:
            self._put(row, "moments", _moments(optimizer, names, parameters))
        if self.wants_updates:
            for name, p in zip(names, parameters, strict=True):
                if name not in self._copies:
                    self._copies[name] = _copied(elements_of(p))

    def after(self, optimizer: Any, row: WatchedRow | None) -> None:
        """Read what the update has changed. row: the row of the step; None where the step is not watched."""
        parameters = list(optimizer.parameters)
        names = self._named(optimizer, parameters)
        if row is None or not self.wants_updates:
            for name in names:
                self._copies.pop(name, None)
        else:
            self.changed(names, parameters, row)

    def changed(self, names: Sequence[Name], parameters: Sequence[Any], row: WatchedRow) -> None:
        """Put the norms of the changes of parameters since they were copied into the row, and copy them again."""
        numbers, pairs = [], []
        for name, p in zip(names, parameters, strict=True):
            before, now = self._copies.get(name), elements_of(p)
            if before is None or now is None or (before.shape, before.dtype) != (now.shape, now.dtype):
                self._copies[name] = _copied(now)
            else:
                numbers.append(self.columns.number(Column("updates", *name, now.size)))
                pairs.append((now, before))
        row.put(numbers, changes_of(pairs))

    def whole(self, row: WatchedRow) -> None:
        """Read the weights of the models, after a step in which Python called no optimizer."""
        named = self.names.all()
        trained = {path: p for path, p in named.items() if getattr(p, "requires_grad", True)}
        names = [(path.rpartition(".")[0], path.rpartition(".")[2]) for path in trained]
        self._put(row, "weights", zip(names, trained.values(), strict=True))
        if self.wants_updates:
            self.changed(names, list(trained.values()), row)

    def _put(self, row: WatchedRow, kind: Kind, tensors: Any) -> None:
        numbers, arrays = [], []
        for (layer, what), t in tensors:
            if t is not None:
                arrays.append(elements_of(t))
                column = Column(kind, layer, what, count_of(t, arrays[-1]))
                numbers.append(self.columns.number(column))
        row.put(numbers, norms_of(arrays))

    def _named(self, optimizer: Any, parameters: list[Any]) -> list[Name]:
        kind = type(optimizer).__name__
        return [name or (kind, f"0.{i}") for i, name in enumerate(self.names.of(parameters))]


def _copied(array: Any) -> Any:
    return None if array is None else np.array(array)


def _moments(optimizer: Any, names: Sequence[Name], parameters: Sequence[Any]) -> Iterator[tuple[Name, Any]]:
    """Yield (name, tensor) of the moments, which an optimizer holds in lists like that of its parameters."""
    shapes = [tuple(p.shape) for p in parameters]
    for key, held in {**vars(optimizer), **getattr(optimizer, "_params_list", {})}.items():
        if not isinstance(held, (list, tuple)) or len(held) != len(parameters):
            continue
        others = [one for one in held if isinstance(one, Parameter)]
        if [tuple(one.shape) for one in others] != shapes or any(
            a is b for a, b in zip(others, parameters, strict=True)
        ):
            continue
        for (layer, what), one in zip(names, others, strict=True):
            yield (layer, f"{what}.{key}"), one
