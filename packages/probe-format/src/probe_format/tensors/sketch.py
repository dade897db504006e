"""Sketch a tensor: sixteen sums of its elements with signs, which tell how far two tensors are apart as a whole.

The sums depend on each element's place in C order alone: not on the device, the layout in memory or the threads
(spec/statistics.md, Sketch).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from probe_format.statistics import SKETCH_SUMS as SUMS

from .narrow_floats import widen

_PIECE = 1 << 16  # elements, whose float64 copy stays in the cache
_ROWS = _PIECE // SUMS


def sketch_of(flat: npt.NDArray[Any], narrow: str | None = None) -> list[float] | None:
    """Return the sketch of real floats; None without elements, and where a sum is not finite.

    flat: shape (n,), in C order, of a dtype that float64 holds.
    narrow: the format in `narrow_floats` that it holds the bits of, else None.
    """
    total = np.zeros(SUMS)
    for begin in range(0, flat.size, _PIECE):
        piece = flat[begin : begin + _PIECE]
        wide = (piece if narrow is None else widen(piece, narrow)).astype(np.float64)
        if rest := wide.size % SUMS:
            wide = np.concatenate((wide, np.zeros(SUMS - rest)))
        rows = wide.reshape(-1, SUMS)
        signs = _signs(begin // SUMS) if begin else _FIRST
        with np.errstate(all="ignore"):
            total += np.einsum("r,rs->s", signs[: len(rows)], rows)  # on this thread alone, in one order
    return rounded(total.tolist()) if flat.size else None


def rounded(sums: Sequence[float]) -> list[float] | None:
    """Return the sums as they are recorded; None where one is not finite."""
    return [float(f"{x:.8g}") for x in sums] if all(map(math.isfinite, sums)) else None


def _signs(row: int) -> npt.NDArray[np.float64]:
    """Return the signs of a piece's rows, 1 or -1, by the last bit of a mixed row number. row: the first."""
    h: Any = np.arange(row, row + _ROWS, dtype=np.uint32)
    h = (h ^ (h >> 16)) * np.uint32(0x7FEB352D)
    h = (h ^ (h >> 15)) * np.uint32(0x846CA68B)
    return np.where((h ^ (h >> 16)) & 1, -1.0, 1.0)


_FIRST = _signs(0)
