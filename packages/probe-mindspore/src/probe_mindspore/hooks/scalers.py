"""Tell when a loss scaler scales a loss or is adjusted, and whether it skips the update as gradients overflowed."""

import functools
from collections.abc import Callable
from typing import Any

from mindspore import amp
from probe_runtime.patching import Function, Held, listening, place

Told = Callable[[Callable[[], bool]], None]
_telling: list[Told] = []
_scaling: list[Callable[[], None]] = []


def watched_scalers(told: Told) -> Held:
    """Call ``told`` where a DynamicLossScaler is adjusted, until the result is undone.

    told: takes a function that returns whether the scaler skips the update. It is not called inside of what MindSpore
        compiles: there the compiler reads the original.
    """
    return listening(_telling, told, [place(amp.DynamicLossScaler, "adjust", _adjusting)])


def watched_scaling(told: Callable[[], None]) -> Held:
    """Call ``told`` where a loss is scaled, outside of what MindSpore compiles, until the result is undone."""
    scalers = (amp.DynamicLossScaler, amp.StaticLossScaler)
    return listening(_scaling, told, [place(scaler, "scale", _scaled) for scaler in scalers])


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
