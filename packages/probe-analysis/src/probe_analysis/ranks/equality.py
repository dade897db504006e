"""Divide ranks into those that hold the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from probe_analysis.compare.distance import distance

_NUMBERS = ("Max", "Min", "Mean", "Norm")
#: Ranks by what they hold: the largest group first, of equal ones that with the lowest rank.
Parting = tuple[tuple[int, ...], ...]


def mark(tensor: Mapping[str, Any]) -> Hashable:
    """Return what tells a tensor's contents apart: its checksum, else its statistics; None when it has neither."""
    shape = str(tensor["shape"])
    if isinstance(tensor.get("md5"), str):
        return shape, tensor["dtype"], tensor["md5"]
    numbers = tuple(tensor.get(key) for key in _NUMBERS)
    if numbers[0] is None and numbers[3] is None:
        return None
    return shape, tensor["dtype"], *numbers


def parted(
    tensors: Mapping[int, Mapping[str, Any]], tolerance: float = 0.0, key: Callable[..., Hashable] = mark
) -> Parting:
    """Return which ranks hold the same tensor.

    tensors: rank -> its tensor; one without numbers is left out.
    tolerance: the relative difference up to which two are the same.
    key: what tells them apart.
    """
    groups: list[tuple[Hashable, int, list[int]]] = []
    for rank, tensor in tensors.items():
        own = key(tensor)
        if own is None:
            continue
        for other, first, members in groups:
            if own == other or (tolerance and distance(tensors[first], tensor).relative <= tolerance):
                members.append(rank)
                break
        else:
            groups.append((own, rank, [rank]))
    return tuple(sorted((tuple(members) for _, _, members in groups), key=lambda m: (-len(m), m)))


def trusted(tensor: Mapping[str, Any]) -> bool:
    """Return whether equal marks mean equal contents.

    Statistics of flags, classes and indices are the same for many orders of them, those of measured numbers are not.
    """
    if isinstance(tensor.get("md5"), str):
        return True
    high, low = tensor.get("Max"), tensor.get("Min")
    both = type(high) is float and type(low) is float
    return both and tensor["shape"] != [] and not (float(high).is_integer() and float(low).is_integer())  # type: ignore[arg-type]
