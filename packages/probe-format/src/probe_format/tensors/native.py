"""Compute the statistics of a tensor's memory in one read by `probe_fast` (extra ``fast``), else by numpy (`stats`).

Both give the same numbers within the bounds of the specification, and the very same extremes and counts.
"""

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from . import stats
from .denormals import flushed, with_denormals
from .narrow_floats import code_values
from .sketch import rounded

try:
    from probe_fast import KINDS, Measured, four, numbers
    from probe_fast import WAY as WAY
except ImportError:
    WAY = ""

#: Returns how many threads may compute; it is asked where there are many elements.
Threads = Callable[[], int] | None


def memory_at(address: int, size: int) -> Any:
    """Return ``size`` bytes of memory as a writable buffer, which does not keep them alive."""
    return _buffer(size).from_address(address)


def array_at(address: int, count: int, dtype: str) -> npt.NDArray[Any]:
    """Return ``count`` contiguous elements in memory as an array, which does not keep them alive."""
    kind = np.dtype(dtype)
    return np.frombuffer(memory_at(address, count * kind.itemsize), kind)


@functools.lru_cache(maxsize=512)  # making the type takes longer than using it
def _buffer(size: int) -> Any:
    return ctypes.c_char * size


def by_reference(address: int, count: int, kind: str, threads: object = None) -> stats.Numbers | None:
    """Return the max, min, mean and norm of contiguous floats in memory by the reference.

    None where there are many, or denormals are flushed, or a result is not finite: then `stats_in` is needed.

    count: how many elements there are, one or more.
    kind: ``float32``, ``float64``, ``float16`` or ``bfloat16``.
    threads: for the form that `numbers_at` has either way; none are needed.
    """
    if count > stats.BLOCK or flushed():
        return None
    bits, narrow = ("uint16", kind) if kind == "bfloat16" else (kind, None)
    with np.errstate(all="ignore"):
        found = stats.numbers_of(stats.widened(array_at(address, count, bits), narrow))
    return found if math.isfinite(sum(x - x for x in found)) else None


#: The same by probe_fast where it is installed.
numbers_at = four if WAY else by_reference


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # which numpy puts together each time


@with_denormals
def stats_in(
    array: npt.NDArray[Any],
    *,
    narrow: str | None = None,
    zero_count: bool = False,
    sketch: bool = False,
    threads: Threads = None,
) -> stats.Stats:
    """Return the statistics of an array of any shape and dtype.

    narrow, zero_count, sketch: as in `stats.stats_of`.
    """
    a = np.asarray(array)
    sketch = sketch and (narrow is not None or a.dtype.kind == "f")
    shape, times = (a.shape, 1) if sketch else stats.distinct(a.shape, a.strides)
    flat = (a if times == 1 else a[tuple(map(slice, shape))]).ravel("C" if sketch else "K")
    found = None
    if WAY and flat.size and a.dtype.isnative:
        where = flat.__array_interface__["data"][0], flat.size, narrow or _name_of(a.dtype)
        found = stats_at(*where, threads=threads, zero_count=zero_count, sketch=sketch)
    found = found or stats.stats_of(flat, narrow=narrow, zero_count=zero_count, sketch=sketch)
    return stats.repeated(found, times)


def stats_at(
    address: int,
    count: int,
    kind: str,
    *,
    zero_count: bool = False,
    sketch: bool = False,
    threads: Threads = None,
) -> stats.Stats | None:
    """Return the statistics of contiguous elements in memory, one or more; None where the reference has to look.

    kind: a dtype of numpy, or a format in `narrow_floats`.
    sketch: of real floats, which are in C order.
    """
    if not WAY or (kind not in KINDS and (table := _table(kind)) is None):
        return None
    known, table = (kind, None) if kind in KINDS else ("codes", table)
    if (
        count <= stats.BLOCK
        and "float" in known
        and not (zero_count or sketch)
        and (of := four(address, count, known))
    ):
        return stats.Stats(*of)
    found = numbers(address, count, known, table=table, threads=threads, zero_count=zero_count, sketch=sketch)
    if found is None:
        return None
    zeros = found.zeros if zero_count else None
    if found.broken:
        top, bottom = (found.max, found.min) if found.max >= found.min else (None, None)
        return stats.not_finite(found.nan, found.above, found.below, top, bottom, zeros)
    sums = rounded(found.sketch) if sketch else None
    high, low = _ends(found, kind) if "int" in kind or kind == "bool" else (found.max, found.min)
    return stats.Stats(high, low, found.mean, found.norm, zeros=zeros, sketch=sums)


def _ends(found: "Measured", kind: str) -> tuple[stats.Number, stats.Number]:
    if kind == "bool":
        return found.max == 1.0, found.min == 1.0
    if not kind.endswith("64"):
        return int(found.max), int(found.min)
    mask = (1 << 64) - 1
    return (found.top, found.bottom) if kind == "int64" else (found.top & mask, found.bottom & mask)


@functools.cache
def _table(name: str) -> int | None:
    """Return the address of the values of an 8-bit format's 256 codes, which stay there; None of any other dtype."""
    return code_values(name).ctypes.data if "float8" in name else None
