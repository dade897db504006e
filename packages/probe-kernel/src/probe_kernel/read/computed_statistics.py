"""Compute the numbers of statistic.csv from the values, for dumps that have only tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.tensors import stats_of

from probe_kernel.files.dtypes import is_numeric

from .categories import CATEGORIES
from .statistic_cell import Value

__all__ = ["NUMBERS", "numbers"]

#: Every statistic but the hashes, which must be named: they cost as much as all the others together.
NUMBERS = tuple(name for name in CATEGORIES if name not in ("md5", "sha1"))


def numbers(
    array: npt.NDArray[Any], categories: Sequence[str] = NUMBERS, dtype: str = ""
) -> Mapping[str, Value]:
    """Compute statistics as MindSpore's host does, in float64; return them by their names in statistic_category.

    array: the values.
    categories: which statistics.
    dtype: the tensor's own dtype, as the dump calls it.

    max, min and avg are of the finite elements; l2norm is of all elements. These four are None where no element is
    finite. ``negative zero count`` counts elements below zero and ``positive zero count`` those above, as MindSpore's
    documents define them. md5 and sha1 are of the bytes in C order. Complex values, and dtypes of which only the codes
    can be read (hifloat8), have a count and hashes alone.
    """
    out: dict[str, Value] = {"count": array.size}
    if array.dtype.kind in "biuf" and is_numeric(dtype):
        out.update(_numbers(array))
    for name in {"md5", "sha1"}.intersection(categories):
        raw: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        out[name] = hashlib.new(name, raw, usedforsecurity=False).hexdigest()
    return {name: out.get(name) for name in categories}


def _numbers(array: npt.NDArray[Any]) -> dict[str, Value]:
    stats = real = stats_of(array)
    some = array
    if stats.nan or stats.posinf or stats.neginf:
        some = array[np.isfinite(array)]
        real = stats_of(some)
    with np.errstate(invalid="ignore"):
        below, above = int(np.count_nonzero(some < 0)), int(np.count_nonzero(some > 0))
    return {
        "max": _plain(real.max),
        "min": _plain(real.min),
        "avg": real.mean,
        "negative zero count": below,
        "positive zero count": above,
        "nan count": stats.nan,
        "negative inf count": stats.neginf,
        "positive inf count": stats.posinf,
        "zero count": some.size - below - above,
        "l2norm": stats.norm if some.size else None,
    }


def _plain(value: float | int | bool | None) -> Value:
    return int(value) if isinstance(value, bool) else value
