"""Run Probe's own computation unseen by the user's torch modes, `__torch_function__` and `torch.func` transforms."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

import torch
from torch.utils import _python_dispatch as dispatch

_P = ParamSpec("_P")
_R = TypeVar("_R")

_modes = torch._C._len_torch_dispatch_stack
_no_functions: Any = torch._C.DisableTorchFunction
#: Reading the levels themselves would leave a stack of them in the thread.
_has_levels = torch._C._are_functorch_transforms_active


def aside() -> AbstractContextManager[Any]:
    """Return a context in which neither `__torch_function__` nor a mode (FakeTensorMode, counters, ...) is called."""
    return _NoModes() if _modes() else _no_functions()


def outside() -> AbstractContextManager[Any]:
    """Return a context that is aside and in which the levels of `torch.func`, which wrap tensors, are off too."""
    return _NoLevels() if _has_levels() else aside()


def apart(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that runs ``work`` within `aside`."""

    @functools.wraps(work)
    def done(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with aside():
            return work(*args, **kwargs)

    return done


class _NoModes:
    def __enter__(self) -> None:
        self._inner: list[Any] = [dispatch._disable_current_modes(), _no_functions()]
        for c in self._inner:
            c.__enter__()

    def __exit__(self, *exc: Any) -> None:
        for c in reversed(self._inner):
            c.__exit__(*exc)


class _NoLevels:
    def __enter__(self) -> None:
        self._modes = aside()
        self._modes.__enter__()
        self._levels = torch._C._DisableFuncTorch()

    def __exit__(self, *exc: Any) -> None:
        del self._levels
        self._modes.__exit__(*exc)
