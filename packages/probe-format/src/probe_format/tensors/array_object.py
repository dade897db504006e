"""Make a numpy array's tensor object for dump.json: dtype, shape, statistics, checksum (spec/statistics.md).

It also gives an array as its file holds it: numpy's files have no bfloat16, nor the other dtypes of ml_dtypes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from probe_format.checksum import crc32, xor_hex

from .narrow_floats import narrow_name
from .native import stats_in
from .stats import NO_STATS, Stats, stats_json

Array = npt.NDArray[Any]


def array_object(
    a: Array,
    *,
    statistics: bool = True,
    checksum: str | None = None,
    zero_count: bool = False,
    sketch: bool = False,
) -> dict[str, Any]:
    """Return the tensor object of an array of any shape and dtype; ``unsupported`` explains what it lacks.

    checksum: None, ``md5`` (a CRC-32, as msprobe writes) or ``xor``.
    """
    cls = type(a)
    name = "numpy.ndarray" if cls is np.ndarray else f"{cls.__module__}.{cls.__qualname__}"
    body: dict[str, Any] = {"type": name, "dtype": str(a.dtype), "shape": list(a.shape)}
    a = np.asarray(a)
    numeric = a.dtype.kind in "biufc" or _is_extended(a.dtype)
    if not numeric:
        body.update(stats_json(NO_STATS), unsupported=f"no statistics for numpy dtype {a.dtype}")
        return body
    if statistics or sketch:
        found = array_stats(a, zero_count=zero_count, sketch=sketch)
        body.update(stats_json(found, statistics=statistics))
    if checksum is not None:
        raw = np.ascontiguousarray(a).reshape(-1).view(np.uint8) if a.size else np.empty(0, np.uint8)
        body["md5"] = checksum_of(raw.data, checksum)
    return body


def array_stats(a: Array, *, zero_count: bool = False, sketch: bool = False) -> Stats:
    """Return the statistics of a numeric array, also of ml_dtypes."""
    narrow = narrow_name(a.dtype.name) if _is_extended(a.dtype) else None
    a = stored(a) if narrow is None else a.view(f"u{a.itemsize}")
    return stats_in(a, narrow=narrow, zero_count=zero_count, sketch=sketch)


def stored(a: Array) -> Array:
    """Return the array as its ``.npy`` file has it: a dtype that numpy lacks becomes one that holds each value.

    bfloat16 and the float8, float6 and float4 kinds of ml_dtypes become float32, its small integers int8.
    """
    if not _is_extended(a.dtype):
        return a
    with np.errstate(all="ignore"):
        return a.astype(np.int8 if "int" in a.dtype.name else np.float32)


def checksum_of(raw: bytes | memoryview, kind: str) -> str:
    """Return the value of the key ``md5``, by ``kind``: ``md5`` (a CRC-32, as msprobe writes) or ``xor``."""
    return f"{crc32(raw):08x}" if kind == "md5" else xor_hex(raw)


def _is_extended(dtype: np.dtype[Any]) -> bool:
    """Return whether the dtype is one of ml_dtypes, known by its scalar type without importing that package."""
    return dtype.type.__module__.partition(".")[0] == "ml_dtypes"
