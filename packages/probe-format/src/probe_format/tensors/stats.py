"""Compute the numbers that describe an array: the reference, in numpy (spec/statistics.md).

``Max``, ``Min``, ``Mean`` and ``Norm`` are computed in float64 (integers: exact extremes), and NaN
propagates into all four. Whenever something is not finite, five more numbers describe how much is not and what
the finite part is. `quick` in `stats_fast` gives the same numbers faster for ordinary arrays.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from probe_format.jsonio import finite

Number = float | int | bool
#: The max, min, mean and norm of floats.
Numbers = tuple[float, float, float, float]
_PIECE = 1 << 16
BLOCK = 1 << 22


@frozen
class Stats:
    """Hold the statistics of one array. None where undefined (empty, meta, non-numeric).

    max, min: of the elements; of the absolute value when complex; any() and all() when bool.
    mean: arithmetic mean (of the absolute value when complex).
    norm: Euclidean norm, never negative.
    nan, posinf, neginf: counts.
    finite_max, finite_min: extremes of the finite elements, None if there is none.
    zeros: count of zeros, None unless asked for.
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

    @property
    def all_finite(self) -> bool:
        """Return whether no element is NaN or infinite."""
        return not (self.nan or self.posinf or self.neginf)


NO_STATS = Stats()


def stats_of(array: npt.NDArray[Any], *, zero_count: bool = False) -> Stats:
    """Return the reference statistics of an array of any shape.

    Covers bool, integer, floating (also ml_dtypes' bfloat16 and float8) and complex arrays; anything else, and an
    empty array, gives `NO_STATS` (with zeros=0 for an empty array when asked).
    """
    a = np.asarray(array)
    if a.size == 0:
        return Stats(zeros=0 if zero_count else None)
    shape, times = distinct(a.shape, a.strides)
    if times > 1:
        return repeated(stats_of(a[tuple(map(slice, shape))], zero_count=zero_count), times)
    kind = a.dtype.kind
    if kind == "b":
        return _of_bool(a, zero_count)
    if kind in "iu":
        return _of_int(a, zero_count)
    if not (kind in "cf" or (kind == "V" and "float" in a.dtype.name)):
        return NO_STATS
    with np.errstate(all="ignore"):  # a signalling NaN warns on the way, or raises if the user wants that
        if a.size <= BLOCK:
            return _of_float(_wide(a).ravel(), a, zero_count)
        return _joined([(_of_float(_wide(block), block, zero_count), block.size) for block in blocks(a)])


def blocks(a: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield the elements of an array, in any order, so many at a time that float64 copies of them take 32 MiB."""
    flat = a.ravel("K")
    return (flat[i : i + BLOCK] for i in range(0, flat.size, BLOCK))


def _wide(a: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the elements as float64, those of complex numbers by their absolute value."""
    if a.dtype.kind == "c":
        return np.abs(a.astype(np.complex128, copy=False))
    return a.astype(np.float64, copy=False)


def _joined(parts: Sequence[tuple[Stats, int]]) -> Stats:
    """Return the statistics of an array from those of its parts, each with its number of elements."""
    stats, elements = [s for s, _ in parts], sum(n for _, n in parts)
    nan, above, below = (sum(getattr(s, name) for s in stats) for name in ("nan", "posinf", "neginf"))
    zeros = None if stats[0].zeros is None else sum(s.zeros or 0 for s in stats)
    tops = [s.max if s.all_finite else s.finite_max for s in stats]
    lows = [s.min if s.all_finite else s.finite_min for s in stats]
    top = max((x for x in tops if x is not None), default=None)
    low = min((x for x in lows if x is not None), default=None)
    if not (nan or above or below):
        mean = math.fsum(s.mean * (n / elements) for s, n in parts if s.mean is not None)
        norm = math.hypot(*[s.norm for s in stats if s.norm is not None])
        return Stats(top, low, mean, norm, zeros=zeros)
    mean = math.nan if nan or (above and below) else math.inf if above else -math.inf
    mx = math.nan if nan else math.inf if above else top
    mn = math.nan if nan else -math.inf if below else low
    norm = math.nan if nan else math.inf
    mx, mn = (-math.inf if mx is None else mx), (math.inf if mn is None else mn)
    return Stats(mx, mn, mean, norm, nan, above, below, top, low, zeros)


def distinct(shape: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return the shape of the elements that have memory of their own, and how often each of them is repeated.

    strides: 0 where a dimension repeats the same memory, as that of a broadcast array does.
    """
    if 0 not in strides:
        return tuple(shape), 1
    own = tuple(1 if step == 0 and size else size for size, step in zip(shape, strides, strict=True))
    return own, math.prod(shape) // max(math.prod(own), 1)


def repeated(s: Stats, times: int) -> Stats:
    """Return the statistics of elements that are each repeated so often."""
    if times == 1 or s.norm is None:
        return s
    counts = {name: getattr(s, name) * times for name in ("nan", "posinf", "neginf")}
    zeros = None if s.zeros is None else s.zeros * times
    return evolve(s, norm=s.norm * math.sqrt(times), zeros=zeros, **counts)


def _of_bool(a: npt.NDArray[Any], zero_count: bool) -> Stats:
    true = int(np.count_nonzero(a))
    n = a.size
    return Stats(true > 0, true == n, true / n, math.sqrt(true), zeros=n - true if zero_count else None)


def _of_int(a: npt.NDArray[Any], zero_count: bool) -> Stats:
    flat = a.reshape(-1)
    # Piece by piece: a float64 copy of the whole would cost more in fresh memory than all the arithmetic.
    pieces = (flat[i : i + _PIECE].astype(np.float64) for i in range(0, flat.size, _PIECE))
    sums = [(float(p.sum()), float(p.dot(p))) for p in pieces]
    mean = math.fsum(total for total, _ in sums) / flat.size
    norm = math.sqrt(math.fsum(squares for _, squares in sums))
    zeros = a.size - int(np.count_nonzero(a)) if zero_count else None
    return Stats(int(a.max()), int(a.min()), mean, norm, zeros=zeros)


def _of_float(wide: npt.NDArray[np.float64], original: npt.NDArray[Any], zero_count: bool) -> Stats:
    with np.errstate(all="ignore"):
        zeros = original.size - int(np.count_nonzero(original)) if zero_count else None
        mx, mn, mean, norm = numbers_of(wide)
        if math.isfinite(mx) and math.isfinite(mn):
            if not math.isfinite(mean):  # the sum overflowed; the mean may be finite all the same
                top = max(abs(mx), abs(mn))
                mean = min(max(top * float((wide / top).mean()), mn), mx)
            return Stats(mx, mn, mean, norm, zeros=zeros)
        good = wide[np.isfinite(wide)]
        nan = int(np.count_nonzero(np.isnan(wide)))
        posinf, neginf = int(np.count_nonzero(wide == np.inf)), int(np.count_nonzero(wide == -np.inf))
        if not nan and not (posinf and neginf):
            mean = math.inf if posinf else -math.inf  # the sum of the rest may have overflowed the other way
        highest = float(good.max()) if good.size else None
        lowest = float(good.min()) if good.size else None
        return Stats(mx, mn, mean, norm, nan, posinf, neginf, highest, lowest, zeros)


def numbers_of(wide: npt.NDArray[np.float64]) -> Numbers:
    """Return the max, min, mean and norm of a 1-D array; the mean is not finite when the sum is not."""
    # The ufuncs themselves: the methods of the array call them too, by way of Python.
    mx, mn, squares = float(_top(wide)), float(_bottom(wide)), float(wide.dot(wide))
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


def stats_json(s: Stats) -> dict[str, Any]:
    """Return the keys of a tensor object, in their order; the added keys only where they apply."""
    mx, mn, mean, norm = s.max, s.min, s.mean, s.norm
    if type(mx) is float and type(mn) is float and mean is not None and norm is not None and s.zeros is None:
        rest = mx - mx + (mn - mn) + (mean - mean) + (norm - norm)
        if rest == 0.0 and s.all_finite:  # the common case
            return {"Max": mx, "Min": mn, "Mean": mean, "Norm": norm}
    four = {"Max": mx, "Min": mn, "Mean": mean, "Norm": norm}
    out: dict[str, Any] = {key: finite(x) if isinstance(x, float) else x for key, x in four.items()}
    if s.zeros is not None:
        out["zero_count"] = s.zeros
    if not s.all_finite:
        out |= {"nan_count": s.nan, "posinf_count": s.posinf, "neginf_count": s.neginf}
        out |= {"finite_max": s.finite_max, "finite_min": s.finite_min}
    return out
