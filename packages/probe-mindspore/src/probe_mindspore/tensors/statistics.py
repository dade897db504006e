"""Compute the statistics of a MindSpore tensor (spec/statistics.md) by numpy, without any MindSpore kernel.

The CPU build has no kernel for a norm, none for bfloat16, and a ``max`` that loses NaN; and each small kernel
costs milliseconds where numpy takes microseconds.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.tensors import CHUNK, Stats, combine, numbers_in, quick, quick_stats, stats_of, widen


def statistics_of(data: npt.NDArray[Any], narrow: str | None, *, zero_count: bool = False) -> Stats:
    """Return the statistics of a C-contiguous array of any shape, which may be empty.

    narrow: the name of its format in `probe_format.tensors.narrow_floats` when the array holds bits of it, else None.
    """
    flat = data.reshape(-1)
    if flat.size == 0:
        return stats_of(np.empty(0), zero_count=zero_count)
    if narrow is None and data.dtype in _NATIVE:
        return quick_stats(flat, zero_count=zero_count)
    if narrow is None and data.dtype != np.float16:
        return stats_of(flat, zero_count=zero_count)
    if zero_count:
        return stats_of(_wide(flat, narrow), zero_count=True)
    if flat.size <= CHUNK:
        return quick_stats(_wide(flat, narrow))
    # Widened piece by piece: allocating a float32 copy of all elements would cost more than the arithmetic.
    parts = [quick(_wide(flat[i : i + CHUNK], narrow)) for i in range(0, flat.size, CHUNK)]
    return combine(parts, flat.size) or stats_of(_wide(flat, narrow))


def four_numbers(data: npt.NDArray[Any], narrow: str | None) -> tuple[float, float, float, float] | None:
    """Return the max, min, mean and norm as `statistics_of` has them, or None where one is not finite.

    data: one float or more; `CHUNK` at most, other than float32 and float64.
    """
    wide = data if narrow is None and data.dtype in _NATIVE else _wide(data, narrow)
    return numbers_in(wide if wide.ndim == 1 else wide.reshape(-1))


_NATIVE = (np.dtype(np.float32), np.dtype(np.float64))


def _wide(piece: npt.NDArray[Any], narrow: str | None) -> npt.NDArray[np.float32]:
    return piece.astype(np.float32) if narrow is None else widen(piece, narrow)
