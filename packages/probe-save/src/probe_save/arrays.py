"""A numpy array as JSON, its statistics, its file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.arrays import npy_bytes, write_parts
from probe_format.checksum import crc32_hex, xor_hex
from probe_format.coverage import Coverage
from probe_format.fused import CHUNK, combine, quick, quick_stats
from probe_format.names import tensor_file_name
from probe_format.stats import Stats, stats_json, stats_of
from probe_format.tree import Path

from .beside import LARGE, beside
from .spot import LeafOptions, Spot

__all__ = ["array_json", "array_stats", "stored"]

Array = npt.NDArray[Any]

_NATIVE = (np.dtype(np.float32), np.dtype(np.float64))


def array_json(a: Array, options: LeafOptions, coverage: Coverage, spot: Spot, path: Path) -> dict[str, Any]:
    """The tensor object of an array of any shape and dtype (spec/statistics.md); writes its file if wanted."""
    coverage.add("seen", "arrays")
    out: dict[str, Any] = {"type": _type_name(a), "dtype": str(a.dtype), "shape": list(a.shape)}
    a = np.asarray(a)
    numeric = a.dtype.kind in "biufc" or _is_extended(a.dtype)

    def numbers() -> dict[str, Any]:
        if not options.statistics and numeric:
            return {}
        return stats_json(array_stats(a, zero_count=options.zero_count) if numeric else Stats())

    if spot.file and a.nbytes >= LARGE:
        told, file = beside(numbers, lambda: _file(a, options, spot, path))
    else:
        told, file = numbers(), _file(a, options, spot, path) if spot.file else {}
    out.update(told)
    out.update(file)
    if not numeric:
        why = f"no statistics for numpy dtype {a.dtype}"
        out["unsupported"] = why
        coverage.add("unsupported", f"array: {why}")
    elif options.checksum is not None:
        raw = _raw(a)
        out["md5"] = crc32_hex(raw) if options.checksum == "md5" else xor_hex(raw)
    coverage.add("recorded", "arrays")
    return out


def _file(a: Array, options: LeafOptions, spot: Spot, path: Path) -> dict[str, Any]:
    """Writes the array; what its object says of the file."""
    if not a.size:
        return {}
    if a.dtype.hasobject:
        return {"lost": "tensor file: an array of Python objects has no bytes of its own"}
    place = spot.names.claim(spot.record, path, "npy")
    name = tensor_file_name(spot.record, "", place, "npy")
    write_parts(options.directory / name, npy_bytes(stored(a)))
    return {"data_name": name}


def array_stats(a: Array, *, zero_count: bool = False) -> Stats:
    """Statistics of a numeric array; those of `probe_format.stats.stats_of`, sooner.

    Ordinary floats are read in pieces that stay in the cache. Half precision goes through float32 on the way.
    """
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
    """The array as its ``.npy`` file has it: a dtype that numpy has not becomes one that holds each value.

    bfloat16 and the float8, float6 and float4 kinds of ml_dtypes become float32, its small integers int8.
    """
    if not _is_extended(a.dtype):
        return a
    with np.errstate(all="ignore"):
        return a.astype(np.int8 if "int" in a.dtype.name else np.float32)


def _wide(a: Array) -> Array:
    return stored(a) if _is_extended(a.dtype) else a


def _is_extended(dtype: np.dtype[Any]) -> bool:
    """Whether it is one of ml_dtypes: known by its scalar type, without importing that package."""
    return dtype.type.__module__.partition(".")[0] == "ml_dtypes"


def _type_name(a: Array) -> str:
    cls = type(a)
    return "numpy.ndarray" if cls is np.ndarray else f"{cls.__module__}.{cls.__qualname__}"


def _raw(a: Array) -> memoryview:
    """The bytes in C order."""
    flat = np.ascontiguousarray(a).reshape(-1)
    return memoryview(flat.view(np.uint8).data if flat.size else b"")
