"""Give `__torch_function__` of the user's tensor subclasses and modes the original function, not our wrapper."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from probe_runtime.patching import original_of
from torch.overrides import (
    TorchFunctionMode,
    _get_overloaded_args,
    _pop_mode_temporarily,
    handle_torch_function,
)

has_override: Callable[[tuple[Any, ...]], bool] = torch._C._has_torch_function
"""Return whether __torch_function__ of an argument or of a mode may handle the call."""


class _TrueNames(TorchFunctionMode):
    """Give __torch_function__ the original function.

    torch looks up the function that it passes (torch.Tensor.add, the global `relu` of torch.nn.functional), so
    a subclass or mode would get our wrapper, which is not in its table of handled functions. This mode is the
    topmost, so it is called first; it passes the call on as torch would, and stays on top of what comes after.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        func = original_of(func)
        if torch._C._is_torch_function_mode_enabled():
            with _pop_mode_temporarily() as mode, _TrueNames():
                return mode.__torch_function__(func, types, args, kwargs)
        tensors = _get_overloaded_args([value for value in _tensors_in(args, kwargs) if type(value) in types])
        for tensor in tensors:
            with _TrueNames():
                result = tensor.__torch_function__(func, types, args, kwargs)
            if result is not NotImplemented:
                return result
        if tensors:  # none handled it: torch raises its own error
            return handle_torch_function(func, tensors, *args, **kwargs)
        return func(*args, **kwargs)


def truly_named(
    original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any]:
    """Return `original`, run under _TrueNames if a subclass or a mode of the user's may get to see it."""
    modes = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    if (
        modes and type(modes[-1]) is _TrueNames
    ):  # inside a mode that computes; a second would recurse without end
        return original
    # torch.set_default_device is a mode that is always on. It handles only factories, and those get the
    # original from torch.
    if all(type(mode).__name__ == "DeviceContext" for mode in modes) and not any(
        _overrides(value) for value in _tensors_in(args, kwargs)
    ):
        return original

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _TrueNames():
            return original(*args, **kwargs)

    return call


def _tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return what may have __torch_function__: the arguments and the elements of sequences among them, in order."""
    found: list[Any] = []
    for value in (*args, *kwargs.values()):
        found.extend(value if isinstance(value, (list, tuple)) else (value,))
    return found


def _overrides(value: Any) -> bool:
    kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return False
    method = getattr(kind, "__torch_function__", torch._C._disabled_torch_function_impl)
    return method is not torch._C._disabled_torch_function_impl
