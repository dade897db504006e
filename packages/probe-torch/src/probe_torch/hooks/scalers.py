"""See the updates that a loss scaler may skip: its gradients have overflowed, and no weight changes."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from probe_runtime.collect import faults_reported
from probe_runtime.patching import Function, place, replaced

Told = Callable[[Callable[[], bool]], None]
Around = Callable[[], AbstractContextManager[None]]
_telling: list[Told] = []
_scaling: list[Around] = []


@contextmanager
def watched_scalers(told: Told) -> Iterator[None]:
    """Call ``told`` after each step of a GradScaler while open, with a function that returns whether it was skipped."""
    _telling.append(told)
    try:
        with replaced([place(torch.amp.GradScaler, "step", _stepping)]):
            yield
    finally:
        _telling.remove(told)


@contextmanager
def watched_scaling(around: Around) -> Iterator[None]:
    """Have what ``around`` returns open around each loss that a GradScaler scales."""
    _scaling.append(around)
    try:
        with replaced([place(torch.amp.GradScaler, "scale", _scaled)]):
            yield
    finally:
        _scaling.remove(around)


def _scaled(original: Function) -> Function:
    @functools.wraps(original)
    def scale(scaler: Any, outputs: Any) -> Any:
        with ExitStack() as stack:
            for around in tuple(_scaling) if scaler.is_enabled() else ():
                stack.enter_context(around())
            return original(scaler, outputs)

    return scale


def _stepping(original: Function) -> Function:
    @functools.wraps(original)
    def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(scaler, optimizer, *args, **kwargs)
        with faults_reported("a loss scaler", "whether it skipped an update"):
            # What the scaler itself has asked; it forgets it at its next update().
            found = list(scaler._found_inf_per_device(optimizer).values()) if scaler.is_enabled() else []
            for each in tuple(_telling):
                each(functools.partial(_any, found))
        return result

    return step


def _any(found: list[torch.Tensor]) -> bool:
    return any(bool(each.item()) for each in found)
