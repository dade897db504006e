"""Tell what trains in a process with MindSpore."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

from attrs import define, field
from mindspore import nn
from probe_runtime.auto import Containment

from probe_mindspore.hooks import autograd
from probe_mindspore.module_kind import CELLS

from .reach import OPTIMIZERS, Reach


@define(eq=False)
class MindSporeScene:
    """The optimizers of this process, and the models that they train.

    A model is the topmost Cell, by containment, that holds a parameter of an optimizer; or, with ``named``, one of
    these classes. MindSpore's own Cells for a step (TrainOneStepCell, WithLossCell) and Cells that hold an optimizer
    are no models: they are looked through.
    """

    named: tuple[str, ...] = ()
    _made: list[weakref.ref[Any]] = field(factory=list)
    _tops: list[weakref.ref[Any]] = field(factory=list)
    _roots: dict[int, tuple[weakref.ref[Any], weakref.ref[Any] | None]] = field(factory=dict)
    _inside: dict[int, tuple[weakref.ref[Any], Reach]] = field(factory=dict)
    _is_known: bool = False

    def __attrs_post_init__(self) -> None:
        for one in gc.get_objects():
            if issubclass(type(one), OPTIMIZERS):
                self.add(one)

    def add(self, optimizer: Any) -> None:
        """Take an optimizer that has just been made."""
        if all(ref() is not optimizer for ref in self._made):
            self._made.append(weakref.ref(optimizer))
            self._is_known = False
            self._inside.clear()

    def optimizers(self) -> list[Any]:
        """Return those that are alive and train something."""
        self._made = [ref for ref in self._made if ref() is not None]
        return [one for one in (ref() for ref in self._made) if one is not None and _parameters(one)]

    def models(self) -> list[Any]:
        if not self._is_known:
            self._look(_held())
        return [top for top in (ref() for ref in self._tops) if top is not None]

    def _look(self, held: Containment) -> None:
        parameters = [p for one in self.optimizers() for p in _parameters(one)]
        tops = held.of_classes(self.named) if self.named else held.models_of(parameters)
        if not self._is_known:
            self._roots.clear()
        self._tops, self._is_known = [weakref.ref(top) for top in tops], True

    def root_of(self, module: Any) -> Any:
        ref, root = self._roots.get(id(module), (None, None))
        if ref is not None and ref() is module and self._is_known:
            return None if root is None else root()
        self._look(_held())
        found = next((top for top in self.models() if _holds(top, module) or _holds(module, top)), None)
        self._roots[id(module)] = weakref.ref(module), None if found is None else weakref.ref(found)
        return found

    def is_training(self, module: Any, root: Any) -> bool:
        """Return whether gradients are recorded (only where they are asked for), or set_train() was called."""
        return self.takes_gradients() or bool(module.training or root.training)

    def takes_gradients(self) -> bool:
        return bool(autograd.recording())

    def in_backward(self) -> bool:
        return autograd.backward_pass() != -1

    def after_backward(self, work: Callable[[], None]) -> None:
        """Do it now: MindSpore tells nobody when a backward pass is over."""
        work()

    def steps_taken(self) -> int:
        counts = [
            getattr(one, name, None) for one in self.optimizers() for name in ("global_step", "state_step")
        ]
        return max((int(count.asnumpy().max()) for count in counts if count is not None), default=0)

    def reach_of(self, called: Any, *given: Any) -> Reach:
        """Return what a Cell or function can call, and what it is given."""
        ref, reach = self._inside.get(id(called), (None, None))
        if ref is None or reach is None or ref() is not called:
            reach = Reach.of(called, *given)
            self._inside[id(called)] = weakref.ref(called), reach
        return reach


def _parameters(optimizer: Any) -> tuple[Any, ...]:
    return tuple(getattr(optimizer, "parameters", None) or ())


def _held() -> Containment:
    return Containment(nn.Cell, "_cells", "_params", _counts)


def _counts(cell: Any) -> bool:
    """Return whether a Cell is of a model, and not of what trains one."""
    if issubclass(type(cell), CELLS.optimizers) or type(cell).__module__.startswith("mindspore.nn.wrap."):
        return False
    own = object.__getattribute__(cell, "__dict__").get("_cells") or {}
    return not any(issubclass(type(inner), OPTIMIZERS) for inner in list(own.values()))


def _holds(top: Any, cell: Any) -> bool:
    return any(one is cell for _, one in CELLS.walk(top))
