"""Compare the saved values of two tensors element by element, in blocks."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen

from .tolerance import eps_of

_BLOCK = 1 << 20
Array = npt.NDArray[Any]


@frozen
class Elements:
    """Say how far the elements of two tensors are apart.

    max_abs: the largest difference.
    max_rel: the largest difference of an element, relative to the larger magnitude of the two.
    relative: the largest difference, relative to the largest magnitude in either tensor.
    cosine: of the angle between the two as vectors; 1 where both are zero.
    max_ulp: the largest difference in units of the last place of the dtype; 0 for integers.
    beyond: the share of elements that differ by more than the tolerance.
    count: how many elements there are.
    """

    max_abs: float
    max_rel: float
    relative: float
    cosine: float
    max_ulp: float
    beyond: float
    count: int


def compare_elements(a: Array, b: Array, dtype: str, tolerance: float) -> Elements:
    """Return the differences of two arrays of one shape.

    a, b: the values; NaN equals NaN, and infinities equal those of their sign.
    dtype: what the tensors were computed in, for the unit of the last place.
    tolerance: relative to the largest magnitude.
    """
    one, two = np.ravel(a), np.ravel(b)
    blocks = [slice(i, i + _BLOCK) for i in range(0, one.size, _BLOCK)]
    largest = max((_largest(x[s]) for x in (one, two) for s in blocks), default=0.0)
    eps = eps_of(dtype)
    max_abs = max_rel = max_ulp = dot = aa = bb = 0.0
    beyond = 0
    for s in blocks:
        x, y = _wide(one[s]), _wide(two[s])
        with np.errstate(all="ignore"):
            apart = np.abs(x - y)
            apart[(x == y) | (np.isnan(x) & np.isnan(y))] = 0.0
            apart[np.isnan(apart)] = np.inf
            bigger = np.maximum(np.abs(x), np.abs(y))
            share = apart / bigger
            share[apart == 0.0] = 0.0
            max_abs = max(max_abs, float(apart.max(initial=0.0)))
            max_rel = max(max_rel, float(share.max(initial=0.0)))
            if eps:
                _, exponent = np.frexp(np.where(np.isfinite(bigger), bigger, 1.0))
                ulps = apart / np.ldexp(eps, exponent - 1)
                max_ulp = max(max_ulp, float(ulps.max(initial=0.0)))
            beyond += int(np.count_nonzero(apart > tolerance * largest))
            both = np.isfinite(x) & np.isfinite(y)
            x, y = np.where(both, x, 0.0), np.where(both, y, 0.0)
            scale = largest or 1.0
            x, y = x / scale, y / scale
            dot += float(np.real(np.vdot(x, y)))
            aa += float(np.real(np.vdot(x, x)))
            bb += float(np.real(np.vdot(y, y)))
    cosine = dot / math.sqrt(aa * bb) if aa and bb else (1.0 if aa == bb else 0.0)
    relative = 0.0 if max_abs == 0.0 else (max_abs / largest if largest else math.inf)
    return Elements(
        max_abs, max_rel, relative, cosine, max_ulp, beyond / one.size if one.size else 0.0, one.size
    )


def _wide(x: Array) -> Array:
    """Return the values in a dtype that holds their differences."""
    return x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)


def _largest(x: Array) -> float:
    wide = np.abs(_wide(x))
    wide = wide[np.isfinite(wide)]
    return float(wide.max(initial=0.0))
