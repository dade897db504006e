"""Fast statistics of ordinary arrays: contiguous float32 or float64 on the CPU.

Works in chunks that stay in the cache, accumulating across chunks in float64. `numkong` (extra ``fast``),
when installed, takes small arrays and the moments of large ones. Whatever holds something that is not
finite goes to the reference in `stats`, so that both agree by construction there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .stats import Stats, stats_of

try:
    import numkong
except ImportError:
    numkong = None

__all__ = ["CHUNK", "Part", "combine", "quick", "quick_stats"]

# Elements: 512 KB of float32, inside the second-level cache of current CPUs.
CHUNK = 1 << 17
_ONES: dict[np.dtype[Any], npt.NDArray[Any]] = {
    np.dtype(np.float32): np.ones(CHUNK, np.float32),
    np.dtype(np.float64): np.ones(CHUNK, np.float64),
}
_SMALL = 8192

Part = tuple[float, float, float, float]


# Not .max() and .min(): these skip NaN instead of looking for it, in two thirds of the time, and what is not
# finite shows in the sum of squares.
_top = np.fmax.reduce
_bottom = np.fmin.reduce


def _numpy_part(a: npt.NDArray[Any]) -> Part:
    n = a.size
    total = a.dot(_ONES[a.dtype][:n]) if n > 256 else a.sum()
    return float(_top(a)), float(_bottom(a)), float(total), float(a.dot(a))


def _numkong_part(a: npt.NDArray[Any]) -> Part:
    total, squares = numkong.moments(a)
    if a.size > _SMALL or squares - squares != 0.0:
        return float(_top(a)), float(_bottom(a)), total, squares
    low, _, high, _ = numkong.minmax(a)
    return high, low, total, squares


#: quick(a): (max, min, sum, sum of squares) of a contiguous 1-D float32/float64 array of at most `CHUNK`
#: elements. The sum of squares is not finite whenever an element is not (and, rarely, when it overflows).
quick = _numpy_part if numkong is None else _numkong_part


def combine(parts: list[Part], count: int) -> Stats | None:
    """Statistics of the whole from its parts, or None when they must be computed by the reference."""
    squares = sum(p[3] for p in parts)
    if not math.isfinite(squares):  # not all elements are finite: nothing else here can be trusted, or added
        return None
    high = max(p[0] for p in parts)
    low = min(p[1] for p in parts)
    # Below 1e-30 the squares of float32 elements lose digits to underflow; all zero is all right.
    if squares < 1e-30 and (high != 0.0 or low != 0.0):
        return None
    return Stats(high, low, math.fsum(p[2] for p in parts) / count, math.sqrt(squares))


def quick_stats(a: npt.NDArray[Any], *, zero_count: bool = False) -> Stats:
    """`stats.stats_of` for a contiguous 1-D float32 or float64 array of one element or more."""
    n = a.size
    with np.errstate(all="ignore"):  # a signalling NaN warns on the way, or raises if the user wants that
        if n <= CHUNK:
            high, low, total, squares = quick(a)
            if 1e-30 < squares < math.inf and not zero_count:
                return Stats(high, low, total / n, math.sqrt(squares))
        elif not zero_count:
            found = combine([quick(a[i : i + CHUNK]) for i in range(0, n, CHUNK)], n)
            if found is not None:
                return found
    return stats_of(a, zero_count=zero_count)
