"""See memory that a framework owns as a buffer or an array, without a copy."""

import ctypes
import functools
from typing import Any

import numpy as np
import numpy.typing as npt


def memory_at(address: int, size: int) -> Any:
    """Return ``size`` bytes of memory as a writable buffer, which does not keep them alive."""
    return _buffer(size).from_address(address)


def array_at(address: int, count: int, dtype: str) -> npt.NDArray[Any]:
    """Return ``count`` contiguous elements in memory as an array, which does not keep them alive."""
    kind = np.dtype(dtype)
    return np.frombuffer(memory_at(address, count * kind.itemsize), kind)


@functools.lru_cache(maxsize=512)
def _buffer(size: int) -> Any:
    """Return the ctypes type of ``size`` bytes; cached, because making one takes longer than using it."""
    return ctypes.c_char * size
