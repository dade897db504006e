"""Tell when a GradScaler scales a loss or makes a step, and whether it skipped the update as gradients overflowed."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from attrs import define
from probe_runtime.collect import faults_reported
from probe_runtime.patching import Function, Held, listening, place

Told = Callable[[Callable[[], bool]], None]
Around = Callable[[], AbstractContextManager[None]]
_telling: list[Told] = []
_scaling: list[Around] = []


def watched_scalers(told: Told) -> Held:
    """Call ``told`` at each step of a GradScaler until the result is undone.

    told: takes a function that returns whether the update was skipped, which is known when the scaler's step is over,
    or the update of the optimizer in it.
    """
    return listening(_telling, told, [place(torch.amp.GradScaler, "step", _stepping)])


def watched_scaling(around: Around) -> Held:
    """Scale each loss of a GradScaler inside the context that ``around`` returns, until the result is undone."""
    return listening(_scaling, around, [place(torch.amp.GradScaler, "scale", _scaled)])


def _scaled(original: Function) -> Function:
    @functools.wraps(original)
    def scale(scaler: Any, outputs: Any) -> Any:
        with ExitStack() as stack:
            for around in tuple(_scaling) if scaler.is_enabled() else ():
                stack.enter_context(around())
            return original(scaler, outputs)

    return scale


@define(eq=False)
class _Skip:
    """Say whether a scaler has skipped an update; also within the scaler's step, as a step of Probe may end there."""

    scaler: Any
    optimizer: Any
    found: list[torch.Tensor] | None = None

    def look(self) -> list[torch.Tensor]:
        """Return the tensors in which the scaler notes an overflow, and keep them: its update() forgets them."""
        if self.found is None:
            found = self.scaler._found_inf_per_device(self.optimizer) if self.scaler.is_enabled() else {}
            self.found = list(found.values())
        return self.found

    def __call__(self) -> bool:
        return any(bool(each.item()) for each in self.look())


def _stepping(original: Function) -> Function:
    @functools.wraps(original)
    def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        skip = _Skip(scaler, optimizer)
        with faults_reported("a loss scaler", "its step"):
            for each in tuple(_telling):
                each(skip)
        result = original(scaler, optimizer, *args, **kwargs)
        with faults_reported("a loss scaler", "whether it skipped an update"):
            skip.look()
        return result

    return step
