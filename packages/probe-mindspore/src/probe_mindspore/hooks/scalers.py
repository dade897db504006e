"""See the updates that a loss scaler may skip: its gradients have overflowed, and no weight changes."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mindspore import amp
from probe_runtime.patching import Function, place, replaced

Told = Callable[[Callable[[], bool]], None]
_telling: list[Told] = []
_scaling: list[Callable[[], None]] = []


@contextmanager
def watched_scalers(told: Told) -> Iterator[None]:
    """Call ``told`` where a DynamicLossScaler is adjusted, with a function that returns whether it skips the update.

    Inside of what MindSpore compiles nothing is seen of it: there its compiler reads the original.
    """
    _telling.append(told)
    try:
        with replaced([place(amp.DynamicLossScaler, "adjust", _adjusting)]):
            yield
    finally:
        _telling.remove(told)


@contextmanager
def watched_scaling(told: Callable[[], None]) -> Iterator[None]:
    """Call ``told`` where a loss is scaled, outside of what MindSpore compiles."""
    _scaling.append(told)
    try:
        scalers = (amp.DynamicLossScaler, amp.StaticLossScaler)
        with replaced([place(scaler, "scale", _scaled) for scaler in scalers]):
            yield
    finally:
        _scaling.remove(told)


def _scaled(original: Function) -> Function:
    @functools.wraps(original)
    def scale(scaler: Any, inputs: Any) -> Any:
        for told in tuple(_scaling):
            told()
        return original(scaler, inputs)

    return scale


def _adjusting(original: Function) -> Function:
    @functools.wraps(original)
    def adjust(scaler: Any, grads_finite: Any) -> Any:
        for each in tuple(_telling):
            each(lambda: not bool(grads_finite))
        return original(scaler, grads_finite)

    return adjust
