"""Measure how far a recorded result is from the exact one, in units of what rounding explains (docs/check.md)."""

import math

import numpy as np
from attrs import frozen

from probe_analysis.compare.dtypes import eps_of, range_of

from .replayer import Array


@frozen
class Error:
    """Say how far a tensor is from the exact one.

    relative: the norm of the difference, relative to the norm of the exact one.
    units: that difference in units of what rounding explains; infinite where only one of them is finite.
    worst: the error of the element that is the farthest off, each element in units of what explains its own error.
    """

    relative: float
    units: float
    worst: float


def error_of(recorded: Array, exact: Array, moved: Array, dtype: str, unit: float) -> Error:
    """Return the error of what was recorded.

    moved: the exact result for inputs that are each moved by ``unit`` of themselves: what rounding of them explains.
    dtype: of the recorded tensor.
    unit: the roundoff of the coarsest dtype of the call.
    """
    tiny, largest = range_of(dtype)
    smallest = tiny if tiny < 1e-30 else tiny * eps_of(dtype)  # float16 is not flushed to zero
    with np.errstate(all="ignore"):
        one, two, third = recorded.astype(exact.dtype).ravel(), exact.ravel(), moved.ravel()
        over = (np.abs(two) >= largest) & ~(np.abs(one) < largest) & ~np.isnan(one)
        apart = np.abs(one - two)
        apart[(one == two) | (np.isnan(one) & np.isnan(two)) | over] = 0.0
        if not np.isfinite(apart).all():
            return Error(math.inf, math.inf, math.inf)
        size, spread = np.abs(two), np.abs(third - two)
        size[~np.isfinite(size)] = spread[~np.isfinite(spread)] = 0.0
        off = _norm(apart)
        if not off:
            return Error(0.0, 0.0, 0.0)
        rms = _norm(spread) / math.sqrt(spread.size)
        allowed = np.sqrt((unit * size) ** 2 + spread**2 + rms**2) + smallest
        whole = math.hypot(unit * _norm(size), _norm(spread)) + smallest * math.sqrt(size.size)
        length = _norm(size)
        return Error(off / length if length else math.inf, off / whole, float((apart / allowed).max()))


def _norm(values: Array) -> float:
    largest = float(values.max(initial=0.0))
    return largest * float(np.linalg.norm((values / largest).ravel())) if largest else 0.0
