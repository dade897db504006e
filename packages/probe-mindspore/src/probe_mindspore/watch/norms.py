"""Compute norms of arrays and of their changes, and count what is not finite.

They are numpy arrays, as the CPU build of MindSpore has no kernel for a norm.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.tensors import stats_in, widen
from probe_format.watch import ABSENT
from probe_runtime.watch import Norms

from probe_mindspore.tensors.tensor_view import view_of

#: How many elements are compared at once: so few that their differences stay in the cache.
_PIECE = 1 << 17
_WIDE = (np.float32, np.float64)

Array = npt.NDArray[Any]


def elements_of(t: Any) -> Array | None:
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


def count_of(t: Any, array: Array | None) -> int:
    """Return how many elements a tensor has. array: what `elements_of` returns of it."""
    return math.prod(t.shape) if array is None else array.size


def norms_of(arrays: Iterable[Array | None]) -> Norms:
    """Return the Euclidean norms of what `elements_of` returns."""
    return _norms(None if array is None else iter([array]) for array in arrays)


def changes_of(pairs: Iterable[tuple[Array, Array]]) -> Norms:
    """Return the norms of the changes of arrays, and bring their copies up to date.

    pairs: (array, earlier copy of it).
    """
    return _norms(_apart(now, before) for now, before in pairs)


def _pieces(array: Array) -> Iterator[Array]:
    return (array[i : i + _PIECE] for i in range(0, array.size, _PIECE))


def _apart(now: Array, before: Array) -> Iterator[Array]:
    """Yield the change of an array, piece by piece while it is in the cache: no copy of the whole is made."""
    room = np.empty(min(now.size, _PIECE), now.dtype)
    for new, old in zip(_pieces(now), _pieces(before), strict=True):
        with np.errstate(all="ignore"):
            change = np.subtract(new, old, out=room[: new.size])
        yield change
        np.copyto(old, new)


def _norms(tensors: Iterable[Iterator[Array] | None]) -> Norms:
    """Return the norms of tensors, each given in pieces, or as None if nobody can read it."""
    norms, bad = [], {}
    for place, pieces in enumerate(tensors):
        if pieces is None:
            norms.append(ABSENT)
            continue
        found = [stats_in(piece) for piece in pieces]
        norms.append(float(np.linalg.norm([s.norm or 0.0 for s in found])))
        if counts := [(s.nan, s.posinf + s.neginf) for s in found if not s.all_finite]:
            nan, infinite = map(sum, zip(*counts, strict=True))
            norms[-1], bad[place] = math.nan if nan else math.inf, (nan, infinite)
    return Norms(np.array(norms), bad)
