"""Compute with denormals where the run has told its processor to take them for zeros.

``torch.set_flush_denormal(True)`` does so, and loading any library that was linked with ``-ffast-math``. `probe_fast`
does the same for itself.
"""

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_LEAST = 2.0**-1022
_DEFAULT = ctypes.c_void_p(-1)  # FE_DFL_ENV of Linux's libraries; others have it elsewhere


def flushed() -> bool:
    """Return whether this thread takes denormals for zeros."""
    return _LEAST / 2 == 0.0


def with_denormals(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that does ``work`` by the processor's default rules, and puts the run's back.

    Elsewhere than on Linux, return ``work`` itself.
    """
    if sys.platform != "linux":
        return work

    @functools.wraps(work)
    def done(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not flushed():
            return work(*args, **kwargs)
        rules = ctypes.create_string_buffer(64)
        libm = ctypes.CDLL(None)
        libm.fegetenv(rules)
        libm.fesetenv(_DEFAULT)
        try:
            return work(*args, **kwargs)
        finally:
            libm.fesetenv(rules)

    return done
