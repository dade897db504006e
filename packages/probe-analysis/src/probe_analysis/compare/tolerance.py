"""Tell how precise each dtype is, and decide by that how far two results of one call may be apart.

Dtypes have one name here, whatever the framework.
"""

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from attrs import frozen

# name -> (distance from 1 to the next number, largest finite number, smallest normal number)
_FLOATS: dict[str, tuple[float, float, float]] = {
    **{
        name: (float(np.finfo(name).eps), float(np.finfo(name).max), float(np.finfo(name).tiny))
        for name in ("float16", "float32", "float64")
    },
    "bfloat16": (2.0**-7, 3.3895313892515355e38, 2.0**-126),
    "float8_e4m3fn": (2.0**-3, 448.0, 2.0**-6),
    "float8_e4m3fnuz": (2.0**-3, 240.0, 2.0**-7),
    "float8_e5m2": (2.0**-2, 57344.0, 2.0**-14),
    "float8_e5m2fnuz": (2.0**-2, 57344.0, 2.0**-15),
}
_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


@cache
def dtype_name(dtype: str) -> str:
    """Return ``float32`` for ``torch.float32``, ``Float32`` and ``float32``."""
    return dtype.rpartition(".")[2].lower()


def eps_of(dtype: str) -> float:
    """Return the distance from 1 to the next larger number; 0 for integers, bools and unknown dtypes."""
    return _limits(dtype)[0]


def range_of(dtype: str) -> tuple[float, float]:
    """Return the smallest number of full precision and the largest finite one; 0 and infinity for other dtypes."""
    return _limits(dtype)[2], _limits(dtype)[1]


@cache
def _limits(dtype: str) -> tuple[float, float, float]:
    name = dtype_name(dtype)
    return _FLOATS.get(_PARTS.get(name, name), (0.0, float("inf"), 0.0))


@frozen
class Tolerance:
    """Bound the difference that rounding explains.

    A call that sums n products in another order is off by about ``eps * sqrt(n)`` of its result; and differences in
    its inputs come out again, at times a few times larger.

    roundings: how many roundings of the dtype one call may differ by.
    gain: how many times larger than in the inputs a difference may come out.
    fixed: one relative bound in place of the first part, for every dtype; None for the rule above.
    """

    roundings: float = 4.0
    gain: float = 8.0
    fixed: float | None = None

    def of(self, tensors: Iterable[Mapping[str, Any]]) -> float:
        """Return the relative difference that one call may make by itself.

        tensors: all that it took and returned: the coarsest float dtype and the largest dimension count.
        """
        eps, length = 0.0, 1
        for tensor in tensors:
            eps, length = max(eps, eps_of(str(tensor["dtype"]))), max((length, *tensor["shape"]))
        if self.fixed is not None:
            return self.fixed if eps else 0.0
        # Half-precision products are summed in float32: their own rounding counts once, whatever the length.
        return self.roundings * (eps * math.sqrt(length) if eps < 1e-5 else eps)

    def allowed(self, own: float, brought: float) -> float:
        """Return how far the results of a call may be apart.

        own: what it may make by itself (`of`).
        brought: the largest relative difference in what it took.
        """
        return own + self.gain * brought
