"""Give each dtype one name, whatever the framework, and tell the precision and range of floating-point ones."""

from functools import cache

import numpy as np

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
