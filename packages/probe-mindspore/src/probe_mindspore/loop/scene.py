"""Find the MindSpore optimizers of a process and the models that they train, and tell whether gradients are taken."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, field
from mindspore import nn
from probe_runtime.auto import Containment, Scene

from probe_mindspore.hooks import autograd
from probe_mindspore.module_kind import CELLS
from probe_mindspore.patching.reach import OPTIMIZERS, Reach


@define(eq=False)
class MindSporeScene(Scene):
    """The optimizers of this process, and the models that they train.

    MindSpore's own Cells for a step (TrainOneStepCell, WithLossCell) and Cells that hold an optimizer are no models:
    the models are looked for inside them.
    """

    kinds = OPTIMIZERS
    _held: dict[int, tuple[weakref.ref[Any], list[weakref.ref[Any]]]] = field(factory=dict)

    def add(self, optimizer: Any) -> None:
        super().add(optimizer)
        self._held.clear()

    def parameters_of(self, optimizer: Any) -> Iterable[Any]:
        return getattr(optimizer, "parameters", None) or ()

    def held(self) -> Containment:
        return Containment(nn.Cell, "_cells", "_params", _counts)

    def belongs(self, module: Any, top: Any) -> bool:
        """Return whether the Cell is in the model, or only wraps it."""
        return _holds(top, module) or _holds(module, top)

    def is_training(self, module: Any, root: Any) -> bool:
        """Return whether gradients are recorded (only where they are asked for), or set_train() was called."""
        return self.takes_gradients() or bool(module.training or root.training)

    def takes_gradients(self) -> bool:
        return bool(autograd.recording())

    def in_backward(self) -> bool:
        return autograd.backward_pass() != -1

    def after_backward(self, work: Callable[[], None]) -> None:
        """Call ``work`` now: MindSpore tells nobody when a backward pass is over."""
        work()

    def steps_taken(self) -> int:
        counts = [
            getattr(one, name, None) for one in self.optimizers() for name in ("global_step", "state_step")
        ]
        return max((int(count.asnumpy().max()) for count in counts if count is not None), default=0)

    def held_by(self, cell: Any) -> list[Any]:
        """Return the optimizers that a Cell can call. No Cell is kept alive: many are copies for one evaluation."""
        key = id(cell)
        known = self._held.get(key)  # at once: another thread may make an optimizer meanwhile
        if known is None:
            held = [weakref.ref(one) for one in Reach.of(cell).optimizers]
            known = self._held[key] = weakref.ref(cell, lambda _: self._held.pop(key, None)), held
        return [one for ref in known[1] if (one := ref()) is not None]


def _counts(cell: Any) -> bool:
    """Return whether a Cell is a part of a model, and not of what trains a model."""
    if issubclass(type(cell), CELLS.optimizers) or type(cell).__module__.startswith("mindspore.nn.wrap."):
        return False
    own = object.__getattribute__(cell, "__dict__").get("_cells") or {}
    return not any(issubclass(type(inner), OPTIMIZERS) for inner in list(own.values()))


def _holds(top: Any, cell: Any) -> bool:
    return any(one is cell for _, one in CELLS.walk(top))
