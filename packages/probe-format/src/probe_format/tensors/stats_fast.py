"""Compute the statistics of ordinary arrays fast: contiguous float32 or float64 on the CPU.

Works in chunks that stay in the cache, accumulating across chunks in float64. `numkong` (extra ``fast``),
when installed, takes small arrays and the moments of large ones. An array with an element that is not
finite goes to the reference in `stats`, so both agree on it by construction.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .addresses import array_at
from .narrow_floats import widen
from .stats import Numbers, Stats, numbers_of, stats_of

try:
    import numkong
except ImportError:
    numkong = None

# Elements: 512 KB of float32, inside the second-level cache of current CPUs.
CHUNK = 1 << 17
_ONES: dict[np.dtype[Any], npt.NDArray[Any]] = {
    np.dtype(np.float32): np.ones(CHUNK, np.float32),
    np.dtype(np.float64): np.ones(CHUNK, np.float64),
}
#: Elements: up to here numkong's minmax is faster than numpy's reductions, which start slower.
_SMALL = 1 << 15

Part = tuple[float, float, float, float]


# Not .max() and .min(): these skip NaN instead of looking for it, in two thirds of the time, and what is not
# finite shows in the sum of squares.
_top = np.fmax.reduce
_bottom = np.fmin.reduce
_sum = np.add.reduce


def _numpy_part(a: npt.NDArray[Any]) -> Part:
    """Return (max, min, sum, sum of squares), as numpy computes them."""
    n = a.size
    squares = float(np.vdot(a, a))  # a dot product that never warns, nor raises if the user wants that
    if squares - squares != 0.0:
        return squares, squares, squares, squares
    # Without NaN, infinity and overflow nothing that follows can warn.
    total = a.dot(_ONES[a.dtype][:n]) if n > 256 else _sum(a)
    return float(_top(a)), float(_bottom(a)), float(total), squares


def _numkong_part(a: npt.NDArray[Any]) -> Part:
    """Return (max, min, sum, sum of squares), as numkong computes them where it can."""
    total, squares = numkong.moments(a)
    if squares - squares != 0.0:  # and numpy might warn of a signalling NaN
        return squares, squares, total, squares
    if a.size > _SMALL:
        return float(_top(a)), float(_bottom(a)), total, squares
    found = numkong.minmax(a)
    if found is None:  # without AVX-512 numkong finds none where all elements are the largest finite number
        return float(_top(a)), float(_bottom(a)), total, squares
    low, _, high, _ = found
    return high, low, total, squares


def proven(part: Callable[[npt.NDArray[Any]], Part]) -> bool:
    """Return whether `part` gives the right numbers here, on arrays that fast code often gets wrong.

    What a compiled library computes differs by the processor's capabilities, so this is asked where it runs.

    part: a candidate for `quick`.
    """
    with np.errstate(all="ignore"):
        return all(_agree(part(a), a.astype(np.float64)) for a in _trials())


def _agree(found: Part, a: npt.NDArray[np.float64]) -> bool:
    high, low, total, squares = found
    if not math.isfinite(squares):
        return True  # then the reference is used, whatever the other numbers
    if (high, low) != (a.max(), a.min()):
        return False
    right = float(a.dot(a))
    if right < 1e-30:  # negligible in a larger sum; alone it goes to the reference
        return squares <= 1e-30
    return abs(squares - right) <= 1e-4 * right and abs(total - float(a.sum())) <= 1e-4 * math.sqrt(right)


def _trials() -> Iterator[npt.NDArray[Any]]:
    """Yield arrays shorter and longer than a vector register, filled with the limits of the dtype."""
    for dtype in (np.float32, np.float64):
        info = np.finfo(dtype)
        edges: list[Any] = [info.max, info.tiny, info.smallest_subnormal, 1.0, 0.0, math.inf, math.nan]
        for size in (1, 7, 33):
            yield from (np.full(size, edge * sign, dtype) for edge in edges for sign in (1, -1))
            yield np.linspace(-2.0, 3.0, size, dtype=dtype)
            yield np.append(np.ones(size, dtype), dtype(math.nan))


#: quick(a): (max, min, sum, sum of squares) of a contiguous 1-D float32/float64 array of at most `CHUNK`
#: elements. The sum of squares is not finite whenever an element is not (and, rarely, when it overflows).
quick = _numkong_part if numkong is not None and proven(_numkong_part) else _numpy_part


def combine(parts: list[Part], count: int) -> Stats | None:
    """Return the statistics of the whole from its parts, or None when the reference must compute them."""
    squares = sum(p[3] for p in parts)
    if not math.isfinite(squares):  # not all elements are finite, so no other number can be trusted
        return None
    high = max(p[0] for p in parts)
    low = min(p[1] for p in parts)
    # Below 1e-30 the squares of float32 elements lose digits to underflow; zeros lose none.
    if squares < 1e-30 and (high != 0.0 or low != 0.0):
        return None
    return Stats(high, low, math.fsum(p[2] for p in parts) / count, math.sqrt(squares))


def quick_stats(a: npt.NDArray[Any], *, zero_count: bool = False) -> Stats:
    """Return `stats.stats_of` of a contiguous 1-D float32 or float64 array of one element or more."""
    n = a.size
    if not zero_count and n <= CHUNK:
        high, low, total, squares = quick(a)
        if 1e-30 < squares < math.inf:
            return Stats(high, low, total / n, math.sqrt(squares))
        if squares <= 1e-30 and a.dtype == np.float32:
            # Gradients that vanish are common. Their squares fit into float64, so nothing can warn.
            return Stats(*numbers_of(a.astype(np.float64)))
    elif not zero_count:
        found = combine([quick(a[i : i + CHUNK]) for i in range(0, n, CHUNK)], n)
        if found is not None:
            return found
    return stats_of(a, zero_count=zero_count)


def numbers_at(address: int, count: int, dtype: str) -> Numbers | None:
    """Return the max, min, mean and norm of contiguous floats in memory, equal to those of `quick_stats`.

    Returns None if one of these numbers is not finite, or if the elements cannot be read from here.

    count: how many elements there are, one or more.
    dtype: ``float32``, ``float64``, ``float16`` or ``bfloat16``, whose numbers are those of its elements as float32.
    """
    narrow = dtype not in _WIDE
    if narrow and not widens(dtype):
        return None
    if count <= _SMALL and quick is _numkong_part:  # which so gets along without an array
        a = numkong.from_pointer(address, count, dtype)
        if narrow:
            a = a.astype("float32")
        total, squares = a.moments()
        if 1e-30 < squares < math.inf:
            if (found := a.minmax()) is not None:
                return found[2], found[0], total / count, math.sqrt(squares)
        elif squares <= 1e-30 and dtype != "float64":
            return numbers_of(np.array(a, np.float64))
    return None if narrow else numbers_in(array_at(address, count, dtype))


def numbers_in(a: npt.NDArray[Any]) -> Numbers | None:
    """Return the max, min, mean and norm of an array as `quick_stats` takes it, equal to its.

    Returns None if one of these numbers is not finite.
    """
    if a.size <= CHUNK:
        high, low, total, squares = quick(a)
        if 1e-30 < squares < math.inf:
            return high, low, total / a.size, math.sqrt(squares)
        if squares <= 1e-30 and a.dtype == np.float32:
            return numbers_of(a.astype(np.float64))
    s = quick_stats(a)
    four: Any = s.max, s.min, s.mean, s.norm
    return four if s.all_finite and math.isfinite(sum(x - x for x in four)) else None


_WIDE = ("float32", "float64")


@functools.cache
def widens(dtype: str) -> bool:
    """Return whether numkong converts every ``float16`` or ``bfloat16`` to float32 rightly, on this processor."""
    if quick is not _numkong_part:
        return False
    bits = np.arange(1 << 16, dtype=np.uint16)
    found = np.array(numkong.from_pointer(bits.ctypes.data, bits.size, dtype).astype("float32"))
    with np.errstate(all="ignore"):
        right = widen(bits, dtype) if dtype == "bfloat16" else bits.view(dtype).astype(np.float32)
    same = found.view(np.uint32) == right.view(np.uint32)
    return bool(np.all(same | (np.isnan(found) & np.isnan(right))))
