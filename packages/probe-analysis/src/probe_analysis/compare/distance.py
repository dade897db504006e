"""Measure how far two tensors are apart, by what their records say about them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from probe_format.jsonio import number

from .dtypes import dtype_name, eps_of

__all__ = ["SAME", "Distance", "distance"]

_COUNTS = ("nan_count", "posinf_count", "neginf_count")


@frozen
class Distance:
    """Say how far two tensors are apart.

    relative: the largest relative difference of a number; 0 where nothing differs, infinity where no number could
    make up for it (another shape or dtype, NaN on one side).
    what: the difference in words, empty where nothing differs.
    """

    relative: float
    what: str = ""


SAME = Distance(0.0)


def distance(a: Mapping[str, Any], b: Mapping[str, Any]) -> Distance:
    """Return how far two tensor objects are apart.

    Differences of Max and Min count relative to the largest magnitude, those of Mean relative to the root mean
    square, so that numbers near zero in a tensor of large ones do not count as large differences.
    """
    if a is b or a == b:
        return SAME
    shapes = a["shape"], b["shape"]
    if shapes[0] != shapes[1]:
        return Distance(math.inf, f"shape {_shape(shapes[0])} against {_shape(shapes[1])}")
    types = dtype_name(str(a["dtype"])), dtype_name(str(b["dtype"]))
    if types[0] != types[1]:
        return Distance(math.inf, f"dtype {types[0]} against {types[1]}")
    sums = a.get("md5"), b.get("md5")
    if isinstance(sums[0], str) and sums[0] == sums[1] and len(sums[0]) == len(sums[1]):
        return SAME
    found = _statistics(a, b, math.prod(shapes[0]))
    if found.relative == 0.0 and None not in sums and sums[0] != sums[1] and all(isinstance(s, str) for s in sums):
        return Distance(eps_of(types[0]) or math.inf, "the same statistics, other bits")
    return found


def _statistics(a: Mapping[str, Any], b: Mapping[str, Any], count: int) -> Distance:
    broken = _broken(a), _broken(b)
    if broken[0] != broken[1]:
        return Distance(math.inf, f"{broken[0] or 'all finite'} against {broken[1] or 'all finite'}")
    high, low = ("finite_max", "finite_min") if broken[0] and "finite_max" in a else ("Max", "Min")
    numbers = {key: (_finite(a.get(key)), _finite(b.get(key))) for key in (high, low, "Mean", "Norm")}
    present = [abs(x) for key in (high, low) for x in numbers[key] if x is not None]
    largest = max(present, default=0.0)
    norm = max((abs(x) for x in numbers["Norm"] if x is not None), default=0.0)
    scales = {high: largest, low: largest, "Norm": norm, "Mean": norm / math.sqrt(count) if count and norm else largest}
    worst = SAME
    for key, (x, y) in numbers.items():
        if x is None or y is None or x == y:
            continue
        scale = scales[key]
        relative = abs(x - y) / scale if scale else math.inf
        if relative > worst.relative:
            worst = Distance(relative, f"{key} {x:.6g} against {y:.6g}")
    return worst


def _broken(tensor: Mapping[str, Any]) -> str:
    """Return what is not finite, as counts where they are known, else the statistics that are not."""
    counts = [f"{tensor[key]} {key.removesuffix('_count')}" for key in _COUNTS if tensor.get(key)]
    if counts:
        return ", ".join(counts)
    bad = [key for key in ("Max", "Min", "Norm") if _is_broken(tensor.get(key))]
    return f"{', '.join(bad)} not finite" if bad and "finite_max" not in tensor else ""


def _is_broken(value: Any) -> bool:
    found = number(value)
    return isinstance(found, float) and not math.isfinite(found)


def _finite(value: Any) -> float | None:
    found = number(value)
    if isinstance(found, bool | int | float):
        try:
            wide = float(found)
        except OverflowError:  # an integer beyond float64
            return None
        return wide if math.isfinite(wide) else None
    return None


def _shape(shape: Any) -> str:
    return "x".join(map(str, shape)) if shape else "()"
