"""Say how far rounding alone takes the recorded numbers of two tensors apart, and which limits a fault exceeds.

Say also how far two tensors are apart by their sketches, and give a number by which a pair of tensors is known again.

The model: each element of a tensor has a relative error of its own, of the size e, the *level*. Each of the four
statistics (Max, Min, Mean, Norm) then estimates e by itself, so that a fault, which moves one of them more than the
others, stands out.
docs/honest-differences.md derives the formulas and says how each constant was measured.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen
from probe_format.statistics import WHOLE

from .dtypes import dtype_name, eps_of

COHERENT = 0.1
"""The share of the errors that all elements have in common, so that Norm moves however many there are."""
ROUNDINGS = 3.0
"""How many roundings one call makes, as errors add up: a module makes about ten, whose root this is."""
SUMMED = 2.0**-22
"""The relative error of a recorded Norm or Mean themselves (float32 sums within pieces)."""
PARAMETER = 1e-6
"""The level above which a parameter is another one, where both runs begin with the same weights in one dtype."""
STEPPED = 1e-3
"""The same after a step whose gradients were apart: Adam moves a weight by about so much, either way where a gradient
is rounding alone."""
CONVERTED = 8.0
"""The same in units of the coarser dtype, where the dtypes differ: a rounding is bounded."""
LIMITS = {"forward": 5.0, "backward": 10.0, "gradient": 13.0, "factor": 7.0}
"""How many times the expected level a call's results may be apart: above all but 1 % of honest pairs."""
EVEN = 0.05
"""The share of a weight gradient's error that is one factor of all elements, and not told by its module's values."""
EXACT = 0.5
"""As in `LIMITS`, for a call that got equal numbers, and whose siblings made equal numbers from equal ones."""
NARROW = 2.0**-12
"""The error of a product of float32 numbers that are rounded to 10 bits before: TF32, HF32."""
PASSED = 2.0**-16
"""How far two recorded norms of one value may be apart, where its layouts are summed in different orders."""
GAIN = 10.0
"""How much of a call's excess that of its siblings may excuse."""
ALONE = 1.5
"""The excess that a call without siblings may have: the median of all calls is 0.7, nine of ten are below this."""


@cache
def unit_of(dtype: str) -> float:
    """Return the relative error of one rounding to a dtype; 0 where numbers are exact.

    It is half the distance from 1 to the next number, but for bfloat16 a quarter: the root mean square, with which the
    limits were measured.
    """
    return eps_of(dtype) / (4.0 if dtype_name(dtype) == "bfloat16" else 2.0)


def mark_of(a: Mapping[str, Any], b: Mapping[str, Any]) -> int:
    """Return a number that tells these two tensors from others, wherever in the run they are met again."""
    keys = (*WHOLE, "sketch") if "sketch" in a else WHOLE
    one, two = (list[Any](t.get(key) for key in keys) for t in (a, b))
    if {*map(type, one + two)} == {float}:
        return int(marks_of(np.array([one + two])).item())
    return hash(repr(one + two))


def marks_of(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a number for each row of some floats that tells it from other rows."""
    found = np.zeros(len(numbers), np.uint64)
    for column in numbers.T:
        found = (found ^ np.ascontiguousarray(column).view(np.uint64)) * _ODD
        found ^= found >> _HALF
    return found.view(np.int64)


#: 2^64 over the golden ratio: times that, each bit reaches all higher ones, and the shift brings these down.
_ODD, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


def sketched(a: Mapping[str, Any], b: Mapping[str, Any]) -> float | None:
    """Return how far two tensors of one shape are apart by their sketches, over the larger norm; None without."""
    one, two = a.get("sketch"), b.get("sketch")
    norms: tuple[Any, Any] = a.get("Norm"), b.get("Norm")
    if type(one) is not list or type(two) is not list or len(one) != len(two):
        return None
    if {*map(type, one), *map(type, two), *map(type, norms)} != {float} or not max(norms):
        return None
    return float(math.dist(one, two) / max(norms))


def along(one: Sequence[float], two: Sequence[float]) -> tuple[float, float]:
    """Return how many times the first vector is in the second (its projection), and the norm of the second's rest."""
    square = sum(x * x for x in one)
    share = sum(x * y for x, y in zip(one, two, strict=True)) / square if square else 0.0
    return share, math.hypot(*(y - share * x for x, y in zip(one, two, strict=True)))


def factor_of(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[float, float]:
    """Return the logarithm of the factor between two tensors with sketches, and the level of what else differs."""
    rest, length = along(a["sketch"], b["sketch"])[1], math.hypot(*a["sketch"])
    if not (length and a["Norm"] and b["Norm"]):
        return math.inf, math.inf
    free = math.sqrt(16 / 15)  # one of 16 numbers went into the factor
    return math.log(b["Norm"] / a["Norm"]), rest / length * free


@frozen(eq=False)
class Size:
    """Hold what the dtype and the shape of a tensor tell: the error of one rounding, and how many elements there are.

    features: how many elements of an activation have errors of their own, as its rows share theirs.
    rows: the first number of the shape, 1 without one.
    """

    unit: float
    count: int
    features: int
    rows: int


@cache
def size_of(dtype: str, shape: tuple[int, ...]) -> Size:
    n = math.prod(shape)
    features = n if not shape else shape[1] if len(shape) == 4 else shape[-1]
    return Size(unit_of(dtype), n, features, shape[0] if shape else 1)


def own_level(tensors: Iterable[Mapping[str, Any]]) -> float:
    """Return the level that one call makes by itself. tensors: all that it took and returned.

    Sums of float32 err by the root of their length in roundings; narrow dtypes are summed in float32 and rounded once.
    """
    unit, longest = 0.0, 1
    for tensor in tensors:
        unit, longest = max(unit, unit_of(str(tensor["dtype"]))), max((longest, *tensor["shape"]))
    return ROUNDINGS * unit * (math.sqrt(longest) if unit < 2.0**-20 else 1.0)
