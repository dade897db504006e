"""Find the torch optimizers of a process and the models that they train, and tell whether gradients are taken.

It also tells whether a model trains, whether a backward pass runs, and how many updates the optimizers have made.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx
from attrs import define
from probe_runtime.auto import Containment, Scene
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

_engine: Any = torch.autograd.Variable._execution_engine


@define(eq=False)
class TorchScene(Scene):
    """The optimizers of this process, and the models that they train, without what spreads these over processes."""

    kinds = (Optimizer,)

    def models(self) -> list[nn.Module]:
        return [_unwrapped(top) for top in super().models()]

    def parameters_of(self, optimizer: Any) -> Iterator[Any]:
        return (p for group in getattr(optimizer, "param_groups", None) or () for p in group["params"])

    def held(self) -> Containment:
        return Containment(nn.Module, "_modules", "_parameters", _counts)

    def belongs(self, module: nn.Module, top: nn.Module) -> bool:
        return any(one is module for one in top.modules())

    def is_training(self, module: nn.Module, root: nn.Module) -> bool:
        # Lightning leaves its wrapper in eval mode.
        return bool(_unwrapped(module).training or _unwrapped(root).training)

    def takes_gradients(self) -> bool:
        return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()

    def in_backward(self) -> bool:
        return torch._C._current_graph_task_id() != -1

    def after_backward(self, work: Callable[[], None]) -> None:
        _engine.queue_callback(work)

    def steps_taken(self) -> int:
        states = [state for one in self.optimizers() for state in list(one.state.values()) if "step" in state]
        return max((int(state["step"]) for state in states), default=0)


def _unwrapped(module: nn.Module) -> nn.Module:
    """Return the model inside what spreads it over processes and devices: names are those of a run on one of them."""
    while isinstance(module, (DistributedDataParallel, DataParallel)):
        module = module.module
    return module


def _counts(module: nn.Module) -> bool:
    return not issubclass(type(module), torch.fx.GraphModule)  # one that was compiled
