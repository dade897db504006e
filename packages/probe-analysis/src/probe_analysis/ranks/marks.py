"""Tell tensors of ranks apart by marks, checksums or else statistics, and group the ranks whose marks are equal."""

import math
import struct
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.statistics import WHOLE

from probe_analysis.compare.distance import distance
from probe_analysis.compare.estimates import level_of

from .held import Held, Piles, all_of, in_order, lowest

_FLOATS = struct.Struct("4d")


def mark(tensor: Mapping[str, Any]) -> Hashable:
    """Return what tells a tensor's contents apart: its checksum, else its statistics; None when it has neither."""
    shape = str(tensor["shape"])
    if isinstance(tensor.get("md5"), str):
        return shape, tensor["dtype"], tensor["md5"]
    numbers = tuple(tensor.get(key) for key in WHOLE)
    if all(type(x) is float for x in numbers):
        return shape, tensor["dtype"], _FLOATS.pack(*(float(x or 0.0) for x in numbers))  # -0.0 is 0.0
    if numbers[0] is None and numbers[3] is None:
        return None
    return shape, tensor["dtype"], *numbers


def held_in(piles: Piles) -> Held | None:
    """Return which ranks hold which tensor; None where there are too many different tensors."""
    return (
        None if piles is None else {bits: _tensor(known, content) for known, (bits, content) in piles.items()}
    )


def _tensor(known: Any, content: Any) -> Any:
    """Return a tensor of piles. known: its mark, which has the floats that ``content`` may lack."""
    if isinstance(known, tuple) and isinstance(known[2], bytes):
        return {**content, **dict(zip(WHOLE, _FLOATS.unpack(known[2]), strict=True))}
    return content


def parted(held: Held, tolerance: float, key: Callable[..., Hashable] | None) -> list[int]:
    """Return the groups of ranks that hold the same tensor, as bits: the largest first, as `in_order` has them.

    held: which ranks hold which tensor; a tensor without numbers is left out.
    tolerance: the level of difference up to which two are the same. key: what tells contents apart; None for `mark`.
    """
    groups: list[tuple[Hashable, Any, list[int]]] = []
    marks = {bits: key(tensor) for bits, tensor in held.items()} if key else _marks(held)
    for bits in sorted(held, key=lowest):
        tensor, own = held[bits], marks[bits]
        if own is None:
            continue
        for other, first, members in groups:
            if own == other or (tolerance and _apart(first, tensor) <= tolerance):
                members.append(bits)
                break
        else:
            groups.append((own, tensor, [bits]))
    return in_order(all_of(members) for _, _, members in groups)


def sums_in(held: Held) -> set[int]:
    """Return the lengths of the checksums of tensors, which tell their kinds; 0 for a tensor without one."""
    return {_length(tensor) for tensor in held.values()}


def _length(tensor: Mapping[str, Any]) -> int:
    known = tensor.get("md5")
    return len(known) if isinstance(known, str) else 0


def _marks(held: Held) -> Mapping[int, Hashable]:
    """Return the mark of each tensor, where not all have checksums of one kind.

    Tensors with equal statistics then have the mark of these. But where checksums of one kind tell some of them
    apart, nothing says which of them a tensor without such a checksum equals: it has no mark.
    """
    found = {bits: mark(tensor) for bits, tensor in held.items()}
    if len(sums_in(held)) < 2:
        return found
    alike: dict[Hashable, list[int]] = {}
    for bits, tensor in held.items():
        alike.setdefault(mark({**tensor, "md5": None}), []).append(bits)
    for numbers, some in alike.items():
        kinds: dict[int, set[Hashable]] = {}
        for bits in some:
            kinds.setdefault(_length(held[bits]), set()).add(found[bits])
        several = max((length for length, each in kinds.items() if len(each) > 1), default=0)
        for bits in some:
            if not several:
                found[bits] = numbers
            elif _length(held[bits]) != several:
                found[bits] = None
    return found


def _apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """Return the level at which two tensors are apart, or infinity where no rounding explains it."""
    found = distance(a, b).relative
    level = level_of(a, b) if 0.0 < found < math.inf else None
    return found if level is None else level.largest


def trusted(tensor: Mapping[str, Any]) -> bool:
    """Return whether equal marks mean equal contents."""
    if isinstance(tensor.get("md5"), str):
        return True
    numbers, shape = [tensor.get(key) for key in WHOLE], tensor["shape"]
    known = all(type(x) is float for x in numbers)
    return known and shape != [] and bool(telling(np.array(numbers, "float64"), np.array(math.prod(shape))))


def telling(floats: npt.NDArray[np.float64], sizes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return for which tensors equal statistics mean equal contents, as far as they can.

    Flags, classes and indices have the same statistics in many orders, and so do tensors of two numbers, and of a few
    large ones beside which the rest is too small to be seen; measured numbers mostly do not.
    floats: the statistics of `WHOLE`, along the last dimension. sizes: how many elements each tensor has.
    """
    high, low, mean, norm = np.moveaxis(floats, -1, 0)
    with np.errstate(all="ignore"):  # where it overflows, nothing is told
        total, square = mean * sizes, norm * norm
        whole = (np.floor(floats[..., :2]) == floats[..., :2]).all(-1)
        between = (high + low) * total - high * low * sizes - square  # the sum of (high - x) * (x - low)
        scale = np.abs((high + low) * total) + np.abs(high * low) * sizes + square
        # How often the largest and the smallest number are there, if all other elements are zero.
        highs = (square - total * low) / (high * (high - low))
        lows = (square - total * high) / (low * (low - high))
        few = (np.abs(highs - np.rint(highs)) < _ROUNDED) & (np.abs(lows - np.rint(lows)) < _ROUNDED)
        several = np.isfinite(between) & (np.abs(between) > 1e-5 * scale) & ~few
        found: npt.NDArray[np.bool_] = ~whole & ((high == low) | several)
        return found


#: How far from a whole number a count that is computed from statistics may be.
_ROUNDED = 1e-3
