"""Find by the names in its code which optimizers and Cells a function or Cell can call, and if it takes gradients."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter
from types import CodeType, FunctionType, MethodType
from typing import Any

import mindspore
from attrs import define, field
from mindspore import nn

from probe_mindspore.module_kind import CELLS

#: The classes of optimizers, without those that compute a learning rate.
OPTIMIZERS = tuple(
    kind for kind in CELLS.optimizers if kind is not nn.learning_rate_schedule.LearningRateSchedule
)
_GRAD = mindspore._c_expression.GradOperation_
_GRADS = {"grad", "value_and_grad", "vjp", "GradOperation", "ForwardValueAndGrad"}
_MOST = 2000  # objects that are looked at


@define
class Reach:
    """Hold the optimizers and Cells that some functions, Cells or other objects can call.

    optimizers: the optimizers, each once.
    cells: the Cells, each once, in the order in which they are met; Cells inside of another one only where that one
        holds an optimizer.
    takes_gradients: whether any of their code takes gradients.
    """

    optimizers: list[Any] = field(factory=list)
    cells: list[Any] = field(factory=list)
    takes_gradients: bool = False
    _holding: dict[int, bool] = field(factory=dict)

    @classmethod
    def of(cls, *starts: Any) -> Reach:
        """Return what these objects reach: by closures, defaults, globals, attributes and items."""
        found = cls()
        seen: dict[Any, Any] = {}
        waiting = [*reversed(starts)]
        while waiting and len(seen) < _MOST:
            one = waiting.pop()
            key = (id(one.__func__), id(one.__self__)) if isinstance(one, MethodType) else id(one)
            if key not in seen:
                seen[key] = one  # alive, so that no other has its id
                waiting += reversed(list(found._take(one)))
        return found

    def _take(self, one: Any) -> Iterator[Any]:
        """Take one object, and yield those that it leads to."""
        if isinstance(one, OPTIMIZERS):
            self.optimizers.append(one)
        elif isinstance(one, nn.Cell):
            self.cells.append(one)
            if self._holds_optimizer(one):
                yield one.construct
        elif isinstance(one, _GRAD):
            self.takes_gradients = True
        elif isinstance(one, FunctionType):
            yield from self._named_in(one, [])
        elif isinstance(one, MethodType):
            function = inspect.unwrap(one.__func__)
            if isinstance(function, FunctionType):
                yield from self._named_in(function, [one.__self__])
        elif isinstance(one, functools.partial):
            yield from (one.func, *one.args, *one.keywords.values())
        elif type(one) in (list, tuple, dict) and len(one) < _MOST:
            yield from one.values() if type(one) is dict else one

    def _named_in(self, function: FunctionType, owners: list[Any]) -> Iterator[Any]:
        """Yield what the source of a function names. owners: objects of which it may name attributes."""
        names = sorted(set(_names(function.__code__)))
        owners += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for cell in function.__closure__ or ():
            try:
                owners.append(cell.cell_contents)
            except ValueError:  # it is not set yet
                continue
        if str(function.__module__).partition(".")[0] != "mindspore":
            self.takes_gradients |= not _GRADS.isdisjoint(names)
            owners += [function.__globals__[name] for name in names if name in function.__globals__]
        for owner in owners:
            is_cell = isinstance(owner, nn.Cell)
            if self._holds_optimizer(owner) if is_cell else not isinstance(owner, MethodType):
                yield from _attributes(owner, names)
            yield owner

    def _holds_optimizer(self, cell: Any) -> bool:
        """Return whether a Cell is an optimizer or has one inside. It is asked at each jitted call, so it is fast."""
        if id(cell) not in self._holding:
            self._holding[id(cell)] = any(issubclass(kind, OPTIMIZERS) for kind in _kinds_in(cell))
        return self._holding[id(cell)]


def _kinds_in(cell: Any) -> set[type]:
    """Return the classes of a Cell and of those inside it."""
    kinds: set[type] = set()
    known: set[int] = set()
    level = [cell]
    while level:
        by_id = dict(zip(map(id, level), level, strict=True))
        fresh = [by_id[which] for which in by_id.keys() - known if by_id[which] is not None]
        known.update(by_id)
        kinds.update(map(type, fresh))
        level = list(chain.from_iterable(map(dict.values, map(_INNER, fresh))))
    return kinds


_INNER: Callable[[Any], dict[str, Any]] = attrgetter("_cells")


def _attributes(owner: Any, names: list[str]) -> Iterator[Any]:
    """Yield the attributes of an object that have one of these names, without running code of the user's."""
    own = getattr(owner, "__dict__", {}) if not isinstance(owner, type) else {}
    for name in names:
        if name in own or (isinstance(owner, nn.Cell) and name in owner._cells):
            yield own[name] if name in own else owner._cells[name]
        elif isinstance(method := inspect.getattr_static(type(owner), name, None), FunctionType):
            yield MethodType(method, owner)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names(one)
