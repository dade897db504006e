"""Compute the numbers that describe an array: the reference, in numpy (spec/statistics.md).

``Max``, ``Min``, ``Mean`` and ``Norm`` are computed in float64 (integers: exact extremes), and NaN
propagates into all four. Whenever something is not finite, five more numbers describe how much is not and what
the finite part is. `native` gives the same numbers, faster where `probe_fast` is installed.

Promise: every number is the true one. Never is a number computed of a part of the elements, of a later state of the
tensor, or so narrowly that it overflows; where there can be none, it is null, with the reason. Held by
tests/torch/test_truth.py, tests/mindspore/test_truth.py.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from probe_format.jsonio import finite

from .denormals import with_denormals
from .narrow_floats import widen
from .sketch import sketch_of

Number = float | int | bool
#: The max, min, mean and norm of floats.
Numbers = tuple[float, float, float, float]
#: Elements whose float64 copy stays in the cache.
BLOCK = 1 << 16


@frozen
class Stats:
    """Hold the statistics of one array. None where undefined (empty, meta, non-numeric).

    max, min: of the elements; of the absolute value when complex; any() and all() when bool.
    mean: arithmetic mean (of the absolute value when complex).
    norm: Euclidean norm, never negative.
    nan, posinf, neginf: counts.
    finite_max, finite_min: extremes of the finite elements, None if there is none.
    zeros: count of zeros, None unless asked for.
    sketch: of real floats, when it was asked for and all its sums are finite.
    """

    max: Number | None = None
    min: Number | None = None
    mean: float | None = None
    norm: float | None = None
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    finite_max: Number | None = None
    finite_min: Number | None = None
    zeros: int | None = None
    sketch: list[float] | None = None

    @property
    def all_finite(self) -> bool:
        """Return whether no element is NaN or infinite."""
        return not (self.nan or self.posinf or self.neginf)


NO_STATS = Stats()


@with_denormals
def stats_of(
    array: npt.NDArray[Any], *, narrow: str | None = None, zero_count: bool = False, sketch: bool = False
) -> Stats:
    """Return the reference statistics of an array of any shape.

    Covers bool, integer, floating (also ml_dtypes' bfloat16 and float8) and complex arrays; anything else, and an
    empty array, gives `NO_STATS` (with zeros=0 for an empty array when asked).

    narrow: the format in `narrow_floats` that the array holds the bits of, else None.
    """
    a = np.asarray(array)
    if a.size == 0:
        return Stats(zeros=0 if zero_count else None)
    floats = narrow is not None or a.dtype.kind == "f" or (a.dtype.kind == "V" and "float" in a.dtype.name)
    if sketch and floats:
        return evolve(stats_of(a, narrow=narrow, zero_count=zero_count), sketch=sketch_of(a.ravel(), narrow))
    shape, times = distinct(a.shape, a.strides)
    if times > 1:
        return repeated(stats_of(a[tuple(map(slice, shape))], narrow=narrow, zero_count=zero_count), times)
    if a.dtype.kind == "b":
        true, n = int(np.count_nonzero(a)), a.size
        return Stats(true > 0, true == n, true / n, math.sqrt(true), zeros=n - true if zero_count else None)
    if not (floats or a.dtype.kind in "iuc"):
        return NO_STATS
    of = _of_float if floats or a.dtype.kind == "c" else _of_int
    with np.errstate(all="ignore"):  # a signalling NaN warns on the way, or raises if the user wants that
        if a.size <= BLOCK:
            return of(widened(a, narrow).ravel(), a, zero_count)
        return _joined([(of(widened(block, narrow), block, zero_count), block.size) for block in blocks(a)])


def blocks(a: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield the elements of an array, in any order, `BLOCK` at a time."""
    flat = a.ravel("K")
    return (flat[i : i + BLOCK] for i in range(0, flat.size, BLOCK))


def widened(a: npt.NDArray[Any], narrow: str | None = None) -> npt.NDArray[np.float64]:
    """Return the elements as float64, those of complex numbers by their absolute value."""
    if a.dtype.kind == "c":
        return np.abs(a.astype(np.complex128, copy=False))
    return (a if narrow is None else widen(a, narrow)).astype(np.float64, copy=False)


def _joined(parts: Sequence[tuple[Stats, int]]) -> Stats:
    """Return the statistics of an array from those of its parts, each with its number of elements."""
    stats, elements = [s for s, _ in parts], sum(n for _, n in parts)
    nan, above, below = (sum(getattr(s, name) for s in stats) for name in ("nan", "posinf", "neginf"))
    zeros = None if stats[0].zeros is None else sum(s.zeros or 0 for s in stats)
    ends = [(s.max, s.min) if s.all_finite else (s.finite_max, s.finite_min) for s in stats]
    tops, lows = ([x for x in each if x is not None] for each in zip(*ends, strict=True))
    top, low = max(tops, default=None), min(lows, default=None)
    if not (nan or above or below):
        mean = math.fsum(s.mean * (n / elements) for s, n in parts if s.mean is not None)
        return Stats(top, low, mean, math.hypot(*[s.norm or 0.0 for s in stats]), zeros=zeros)
    return not_finite(nan, above, below, top, low, zeros)


def not_finite(
    nan: int, above: int, below: int, top: Number | None, low: Number | None, zeros: int | None
) -> Stats:
    """Return the statistics of elements that are not all finite.

    nan, above, below: how many are NaN, infinity, minus infinity.
    top, low: the extremes of the finite ones, None if none is.
    """
    if nan:
        return Stats(math.nan, math.nan, math.nan, math.nan, nan, above, below, top, low, zeros)
    mean = math.nan if above and below else math.inf if above else -math.inf
    mx = math.inf if above else top
    mn = -math.inf if below else low
    mx, mn = (-math.inf if mx is None else mx), (math.inf if mn is None else mn)
    return Stats(mx, mn, mean, math.inf, nan, above, below, top, low, zeros)


def distinct(shape: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return the shape of the elements that have memory of their own, and how often each of them is repeated.

    strides: 0 where a dimension repeats the same memory, as that of a broadcast array does.
    """
    if 0 not in strides:
        return tuple(shape), 1
    own = tuple(1 if step == 0 and size else size for size, step in zip(shape, strides, strict=True))
    return own, math.prod(shape) // max(math.prod(own), 1)


def repeated(s: Stats, times: int) -> Stats:
    """Return the statistics of elements of which each is there ``times`` times."""
    if times == 1 or s.norm is None:
        return s
    counts = {name: getattr(s, name) * times for name in ("nan", "posinf", "neginf")}
    zeros = None if s.zeros is None else s.zeros * times
    return evolve(s, norm=s.norm * math.sqrt(times), zeros=zeros, **counts)


def _of_int(wide: npt.NDArray[np.float64], original: npt.NDArray[Any], zero_count: bool) -> Stats:
    zeros = original.size - int(np.count_nonzero(original)) if zero_count else None
    return Stats(int(original.max()), int(original.min()), *numbers_of(wide)[2:], zeros=zeros)


def _of_float(wide: npt.NDArray[np.float64], original: npt.NDArray[Any], zero_count: bool) -> Stats:
    zeros = wide.size - int(np.count_nonzero(wide)) if zero_count else None
    mx, mn, mean, norm = numbers_of(wide)
    if math.isfinite(mx) and math.isfinite(mn):
        if not math.isfinite(mean):  # the sum overflowed; the mean may be finite all the same
            top = max(abs(mx), abs(mn))
            mean = min(max(top * float((wide / top).mean()), mn), mx)
        return Stats(mx, mn, mean, norm, zeros=zeros)
    good = wide[np.isfinite(wide)]
    nan = int(np.count_nonzero(np.isnan(wide)))
    posinf, neginf = int(np.count_nonzero(wide == np.inf)), int(np.count_nonzero(wide == -np.inf))
    highest = float(good.max()) if good.size else None
    lowest = float(good.min()) if good.size else None
    return not_finite(nan, posinf, neginf, highest, lowest, zeros)


def numbers_of(wide: npt.NDArray[np.float64]) -> Numbers:
    """Return the max, min, mean and norm of a 1-D array; the mean is not finite when the sum is not."""
    # The ufuncs themselves: the methods of the array call them too, by way of Python.
    # A longer dot product wakes the threads of BLAS, which on a busy machine take a hundred times as long as this one.
    squares = float(wide.dot(wide) if wide.size <= 8192 else np.einsum("i,i->", wide, wide))
    mx, mn = float(_top(wide)), float(_bottom(wide))
    norm = math.sqrt(squares) if 1e-280 < squares < math.inf else _norm(wide, mx, mn, squares)
    return mx, mn, float(_sum(wide)) / wide.size, norm


_top, _bottom, _sum = np.maximum.reduce, np.minimum.reduce, np.add.reduce


def _norm(wide: npt.NDArray[np.float64], mx: float, mn: float, total: float) -> float:
    """Return the Euclidean norm, scaled because ``total``, the plain sum of squares, over- or underflows float64."""
    top = max(abs(mx), abs(mn))
    if total != total or top == 0.0 or not math.isfinite(top):
        return math.sqrt(total) if total >= 0 else total
    scaled = wide / top
    return top * math.sqrt(float(scaled.dot(scaled)))


def stats_json(s: Stats, *, statistics: bool = True) -> dict[str, Any]:
    """Return the keys of a tensor object, in their order; the added keys only where they apply.

    statistics: whether they are asked for; the sketch is told without them too.
    """
    sketch = {} if s.sketch is None else {"sketch": s.sketch}
    if not statistics:
        return sketch
    mx, mn, mean, norm = s.max, s.min, s.mean, s.norm
    four = {"Max": mx, "Min": mn, "Mean": mean, "Norm": norm}
    if type(mx) is float and type(mn) is float and mean is not None and norm is not None and s.zeros is None:
        rest = mx - mx + (mn - mn) + (mean - mean) + (norm - norm)
        if rest == 0.0 and s.all_finite and s.sketch is None:  # the common case
            return four
    out: dict[str, Any] = {key: finite(x) if isinstance(x, float) else x for key, x in four.items()}
    if s.zeros is not None:
        out["zero_count"] = s.zeros
    if not s.all_finite:
        out |= {"nan_count": s.nan, "posinf_count": s.posinf, "neginf_count": s.neginf}
        out |= {"finite_max": s.finite_max, "finite_min": s.finite_min}
    return out | sketch
