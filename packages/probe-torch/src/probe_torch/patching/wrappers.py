"""Wrap a torch function so that the model's calls of it go to the tap, which records them, while a dump runs."""

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from probe_runtime.patching import Label, Nested, Switch, muted, original_of, stand_in
from probe_runtime.patching import thread as _thread
from torch.overrides import TorchFunctionMode, _pop_mode_temporarily, handle_torch_function

from probe_torch.compiling import is_compiling

from .callers import is_model_calling, verdicts

Wrapper = Callable[..., Any]

switch = Switch()
"""The switch of torch's wrappers."""

_wrappers: weakref.WeakValueDictionary[tuple[Any, ...], Wrapper] = weakref.WeakValueDictionary()
_nested = Nested()


def wrap(label: Label, original: Callable[..., Any], module: str, qualname: str) -> Wrapper:
    """Return the wrapper of `original`, one for all places that have it: compiled code is guarded by its identity.

    module, qualname: the place where the wrapper goes, by which pickle finds it.
    """
    key = (label.name, label.kind, id(original))
    found = _wrappers.get(key)
    if found is None:
        found = _wrappers[key] = stand_in(_build(label, original), original)
        found.__module__, found.__qualname__ = module, qualname
    return found


def _build(label: Label, original: Callable[..., Any]) -> Wrapper:
    # Everything that a call needs is a local of this function: it runs some 100,000 times a step.
    compiling = is_compiling
    tracing_state = torch._C._get_tracing_state
    caller = sys._getframe
    composite = label.composite

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        # First, because Dynamo evaluates this condition while it inlines the wrapper, and so drops the rest.
        if compiling() or tracing_state() is not None:
            return original(*args, **kwargs)
        tap = switch.tap
        if tap is None:
            return original(*args, **kwargs)
        call = original
        if _has_override((*args, *kwargs.values()) if kwargs else args):
            call = _truly_named(original, args, kwargs)
        if _thread.muted:
            return call(*args, **kwargs)
        try:
            seen = verdicts[caller(1).f_code.co_filename]
        except (KeyError, ValueError):
            seen = is_model_calling()
        if not seen:
            with muted():  # calls that this one makes are not the model's either
                return call(*args, **kwargs)
        if not composite:
            return tap(label, call, args, kwargs)
        # Functions that a composite one calls are recorded too, but not the composite one itself a second time.
        if _nested.is_recorded(label, wrapper):
            return call(*args, **kwargs)
        before, (_nested.what, _nested.by) = (_nested.what, _nested.by), (label, wrapper)
        try:
            return tap(label, call, args, kwargs)
        finally:
            _nested.what, _nested.by = before

    return wrapper


_has_override: Callable[[tuple[Any, ...]], bool] = torch._C._has_torch_function
"""Return whether __torch_function__ of an argument or of a mode may handle the call."""


class _OriginalNames(TorchFunctionMode):
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
            with _pop_mode_temporarily() as mode, _OriginalNames():
                return mode.__torch_function__(func, types, args, kwargs)
        given, kinds = _tensors_in(args, kwargs), types if torch._C._is_torch_function_enabled() else ()
        # One of each type, in torch's order. A metaclass may have an __eq__, and no __hash__.
        tensors = [value for kind in kinds for value in [v for v in given if type(v) is kind][:1]]
        for tensor in tensors:
            with _OriginalNames():
                result = tensor.__torch_function__(func, types, args, kwargs)
            if result is not NotImplemented:
                return result
        if tensors:  # none handled it: torch raises its own error
            return handle_torch_function(func, tensors, *args, **kwargs)
        return func(*args, **kwargs)


def _truly_named(
    original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any]:
    """Return `original`, run under _OriginalNames if a subclass or a mode of the user's may get to see it."""
    modes = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    # It is the topmost already, as a mode of the user's computes: a second would recurse without end.
    if modes and type(modes[-1]) is _OriginalNames:
        return original
    # torch.set_default_device is a mode that is always on. It handles only factories, and those get the
    # original from torch.
    if all(type(mode).__name__ == "DeviceContext" for mode in modes) and not any(
        _overrides(value) for value in _tensors_in(args, kwargs)
    ):
        return original

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _OriginalNames():
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
