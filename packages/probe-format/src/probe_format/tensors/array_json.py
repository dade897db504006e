"""Encode a numpy array as dump.json and debug.json hold it (spec/statistics.md)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from probe_format.checksum import crc32_hex, xor_hex

from .stats import NO_STATS, Stats, distinct, repeated, stats_json, stats_of
from .stats_fast import CHUNK, combine, quick, quick_stats

Array = npt.NDArray[Any]

_NATIVE = (np.dtype(np.float32), np.dtype(np.float64))


def array_object(
    a: Array, *, statistics: bool = True, checksum: str | None = None, zero_count: bool = False
) -> dict[str, Any]:
    """Return the tensor object of an array of any shape and dtype; ``unsupported`` explains what it lacks.

    checksum: None, ``md5`` (a CRC-32, as msprobe writes) or ``xor``.
    """
    body: dict[str, Any] = {"type": _type_name(a), "dtype": str(a.dtype), "shape": list(a.shape)}
    a = np.asarray(a)
    numeric = a.dtype.kind in "biufc" or _is_extended(a.dtype)
    if not numeric:
        body.update(stats_json(NO_STATS), unsupported=f"no statistics for numpy dtype {a.dtype}")
        return body
    if statistics:
        body.update(stats_json(array_stats(a, zero_count=zero_count)))
    if checksum is not None:
        body["md5"] = checksum_of(_raw(a), checksum)
    return body


def array_stats(a: Array, *, zero_count: bool = False) -> Stats:
    """Return the statistics of a numeric array, equal to `stats.stats_of` but faster.

    Ordinary floats are read in pieces that stay in the cache. Half precision is converted to float32 first.
    """
    shape, times = distinct(a.shape, a.strides)
    if times > 1:
        return repeated(array_stats(a[tuple(map(slice, shape))], zero_count=zero_count), times)
    if not a.size or zero_count or not a.dtype.isnative:
        return stats_of(_wide(a), zero_count=zero_count)
    if a.dtype in _NATIVE:
        return quick_stats(a.ravel(order="K"))
    if a.dtype == np.float16 or (_is_extended(a.dtype) and "int" not in a.dtype.name):
        flat = a.ravel(order="K")
        with np.errstate(all="ignore"):
            pieces = (flat[i : i + CHUNK].astype(np.float32) for i in range(0, flat.size, CHUNK))
            found = combine([quick(piece) for piece in pieces], flat.size)
        if found is not None:
            return found
    return stats_of(_wide(a))


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
    return crc32_hex(raw) if kind == "md5" else xor_hex(raw)


def _wide(a: Array) -> Array:
    return stored(a) if _is_extended(a.dtype) else a


def _is_extended(dtype: np.dtype[Any]) -> bool:
    """Return whether the dtype is one of ml_dtypes, known by its scalar type without importing that package."""
    return dtype.type.__module__.partition(".")[0] == "ml_dtypes"


def _type_name(a: Array) -> str:
    cls = type(a)
    return "numpy.ndarray" if cls is np.ndarray else f"{cls.__module__}.{cls.__qualname__}"


def _raw(a: Array) -> memoryview:
    """Return the bytes in C order."""
    flat = np.ascontiguousarray(a).reshape(-1)
    return memoryview(flat.view(np.uint8).data if flat.size else b"")
