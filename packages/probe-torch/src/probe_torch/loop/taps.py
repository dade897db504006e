"""Find the forwards, updates and new optimizers of a run, by watching calls of modules, optimizers and scalers.

They tell where the steps of a training loop are, in a script that calls nothing of Probe itself.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from probe_runtime.auto import AutoSteps
from probe_runtime.patching import Function, listening, place
from torch import nn
from torch.optim import Optimizer
from torch.optim import optimizer as torchs

from probe_torch.compiling import left_out
from probe_torch.hooks.modules import outermost_calls
from probe_torch.optimizer_hooks import hooked
from probe_torch.patching.regions import watched_regions

from .scene import TorchScene

_watching: list[AutoSteps] = []


@contextmanager
def watched(steps: AutoSteps, scene: TorchScene) -> Iterator[None]:
    """Tell ``steps`` of every outermost forward and every update, and ``scene`` of new optimizers, while open."""
    places = [
        place(Optimizer, "__init__", _after, AutoSteps.optimizer_made),
        place(Optimizer, "add_param_group", _after, _optimizer_changed),
        place(torch.amp.GradScaler, "step", _scaling),
    ]
    if scene.named:
        places += [place(nn.Module, name, _after, _module_made) for name in ("__init__", "__setstate__")]
    hidden = _Hidden(steps)
    begins, ends = left_out(hidden.region_begins), left_out(steps.update_ends)
    with (
        listening(_watching, steps, places),
        outermost_calls(left_out(steps.called)),
        watched_regions(("Optimizer.step#",), begins, ends),
        hooked(torchs._global_optimizer_pre_hooks, left_out(hidden.before)),
        hooked(torchs._global_optimizer_post_hooks, left_out(hidden.after)),
    ):
        yield


class _Hidden:
    """Report an optimizer's steps that have no profiler region, by the hooks on optimizers.

    `torch.compile` of an optimizer's step leaves the region out and keeps the hooks.
    """

    def __init__(self, steps: AutoSteps) -> None:
        self._steps = steps
        self._alone = False

    def region_begins(self) -> bool:
        self._steps.update_begins()
        return True

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self._steps.updating:
            self._steps.update_begins(may_start=False)  # hooks are being called
            self._alone = True
        self._steps.stepping(optimizer)

    def after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._alone:
            self._alone = False
            self._steps.update_ends()


def _after(original: Function, tell: Callable[[AutoSteps, Any], None]) -> Function:
    """Return a method that does as the original, then calls ``tell`` with the object that it was called on."""

    @functools.wraps(original)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for steps in tuple(_watching):
            tell(steps, self)

    return call


def _optimizer_changed(steps: AutoSteps, optimizer: Any) -> None:
    if steps.scene.has(optimizer):  # else it is being made
        steps.optimizer_made(optimizer)


def _module_made(steps: AutoSteps, module: Any) -> None:
    steps.scene.module_made(module)


def _scaling(original: Function) -> Function:
    @functools.wraps(original)
    def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for steps in tuple(_watching):
                steps.update_begins()
                stack.callback(steps.update_ends)
                steps.stepping(getattr(optimizer, "optimizer", optimizer))  # accelerate's wrapper
            return original(scaler, optimizer, *args, **kwargs)

    return step
