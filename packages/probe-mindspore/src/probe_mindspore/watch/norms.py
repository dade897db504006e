"""Compute the norms of tensors by numpy: the CPU build of MindSpore has no kernel for one."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.tensors import widen
from probe_runtime.watch import Norms

from probe_mindspore.tensors.tensor_view import view_of

#: How many elements are added up in float32.
_PIECE = 1 << 17
_SMALL, _LARGE = 1e-30, 1e30  # squares that float32 holds with all of their digits
_WIDE = (np.float32, np.float64)


def elements_of(t: Any) -> npt.NDArray[Any] | None:
    """Return the elements as float32 or float64 in one row; None where a tensor has none that can be read.

    They are valid only until the user's code runs again.
    """
    view = view_of(t)
    data = view.data
    if data is None:
        return None
    data = data.reshape(-1)
    if view.narrow is not None:
        return widen(data, view.narrow)
    if np.iscomplexobj(data):
        data = np.ascontiguousarray(data).view(data.real.dtype)
    if data.dtype in _WIDE:
        return data
    return data.astype(np.float32 if data.dtype == np.float16 else np.float64)


def norms_of(arrays: Iterable[npt.NDArray[Any]]) -> Norms:
    """Return the Euclidean norms of what `elements_of` returns."""
    values, bad = [], {}
    for place, array in enumerate(arrays):
        square = sum(_square(array[i : i + _PIECE]) for i in range(0, array.size, _PIECE))
        if not _SMALL < square < _LARGE and array.size:
            square, counts = _anew(array)
            if counts is not None:
                bad[place] = counts
        values.append(square)
    return Norms(np.sqrt(np.array(values, np.float64)), bad)


def _square(piece: npt.NDArray[Any]) -> float:
    with np.errstate(all="ignore"):
        return float(np.dot(piece, piece))


def _anew(array: npt.NDArray[Any]) -> tuple[float, tuple[int, int] | None]:
    """Return the square of the norm in float64, and how many elements are NaN and infinite where some are."""
    with np.errstate(all="ignore"):
        nan, infinite = int(np.isnan(array).sum()), int(np.isinf(array).sum())
        if nan or infinite:
            return (np.nan if nan else np.inf), (nan, infinite)
        top = float(np.abs(array).max())
        if not top:
            return 0.0, None
        return sum(
            _square(array[i : i + _PIECE].astype(np.float64)) for i in range(0, array.size, _PIECE)
        ), None
