"""Tell what trains in a process with torch."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from attrs import define, field
from probe_runtime.auto import Containment
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

_engine: Any = torch.autograd.Variable._execution_engine


@define(eq=False)
class TorchScene:
    """The optimizers of this process, and the models that they train.

    A model is the topmost module, by containment, that holds a parameter of an optimizer; or, with ``named``, one of
    these classes. It is looked for again once there is another optimizer, and when an unknown module is called.
    """

    named: tuple[str, ...] = ()
    _made: list[weakref.ref[Optimizer]] = field(factory=list)
    _live: list[Optimizer] = field(factory=list)
    _tops: list[weakref.ref[nn.Module]] = field(factory=list)
    _roots: dict[int, tuple[weakref.ref[nn.Module], weakref.ref[nn.Module] | None]] = field(factory=dict)
    _is_known: bool = False

    def __attrs_post_init__(self) -> None:
        for one in gc.get_objects():
            if issubclass(type(one), Optimizer):
                self.add(one)

    def add(self, optimizer: Optimizer) -> None:
        """Take an optimizer that has just been made."""
        if all(ref() is not optimizer for ref in self._made):
            self._made.append(weakref.ref(optimizer))
            self._is_known = False

    def optimizers(self) -> list[Optimizer]:
        """Return those that are alive and train something."""
        self._made = [ref for ref in self._made if ref() is not None]
        live = [one for one in (ref() for ref in self._made) if one is not None]
        return [one for one in live if getattr(one, "param_groups", None)]

    def models(self) -> list[nn.Module]:
        if not self._is_known:
            self._look(_held())
        return [_unwrapped(top) for top in (ref() for ref in self._tops) if top is not None]

    def _look(self, held: Containment) -> None:
        parameters = [p for one in self.optimizers() for group in one.param_groups for p in group["params"]]
        tops = held.of_classes(self.named) if self.named else held.models_of(parameters)
        if not self._is_known:
            self._roots.clear()
        self._tops, self._is_known = [weakref.ref(top) for top in tops], True

    def root_of(self, module: nn.Module) -> nn.Module | None:
        ref, root = self._roots.get(id(module), (None, None))
        if ref is not None and ref() is module and self._is_known:
            return None if root is None else root()
        held = _held()
        self._look(held)
        tops = [top for top in (one() for one in self._tops) if top is not None]
        around = tops if self.named else held.tops(module)
        found = next((top for top in around if any(top is one for one in tops) and _holds(top, module)), None)
        self._roots[id(module)] = weakref.ref(module), None if found is None else weakref.ref(found)
        return found

    def is_training(self, module: nn.Module, root: nn.Module) -> bool:
        return bool(
            _unwrapped(module).training or _unwrapped(root).training
        )  # Lightning leaves its wrapper in eval mode

    def takes_gradients(self) -> bool:
        return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()

    def in_backward(self) -> bool:
        return torch._C._current_graph_task_id() != -1

    def after_backward(self, work: Callable[[], None]) -> None:
        _engine.queue_callback(work)

    def steps_taken(self) -> int:
        states = [state for one in self.optimizers() for state in one.state.values() if "step" in state]
        return max((int(state["step"]) for state in states), default=0)


def _unwrapped(module: nn.Module) -> nn.Module:
    """Return the model inside what spreads it over processes and devices: names are those of a run on one of them."""
    while isinstance(module, (DistributedDataParallel, DataParallel)):
        module = module.module
    return module


def _held() -> Containment:
    return Containment(nn.Module, "_modules", "_parameters", _counts)


def _counts(module: nn.Module) -> bool:
    return not issubclass(type(module), torch.fx.GraphModule)  # one that was compiled


def _holds(top: nn.Module, module: nn.Module) -> bool:
    return top is module or any(one is module for one in top.modules())
