"""A numpy array as a record has it, and its file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.names import tensor_file_name
from probe_format.tensors import array_object, npy_bytes, stored, write_parts
from probe_format.values import ValuePath
from probe_format.write import Coverage

from .place import LeafOptions, Spot
from .two_at_once import LARGE, beside

__all__ = ["array_json"]

Array = npt.NDArray[Any]


def array_json(a: Array, options: LeafOptions, coverage: Coverage, spot: Spot, path: ValuePath) -> dict[str, Any]:
    """The tensor object of an array of any shape and dtype (spec/statistics.md); writes its file if wanted."""

    def told() -> dict[str, Any]:
        return array_object(
            a, statistics=options.statistics, checksum=options.checksum, zero_count=options.zero_count
        )

    if spot.file and a.nbytes >= LARGE:
        out, file = beside(told, lambda: _file(a, options, spot, path))
    else:
        out, file = told(), _file(a, options, spot, path) if spot.file else {}
    if "unsupported" in out:
        coverage.add("unsupported", f"array: {out['unsupported']}")
    coverage.outcome("arrays", "recorded")
    return {**out, **file}


def _file(a: Array, options: LeafOptions, spot: Spot, path: ValuePath) -> dict[str, Any]:
    """Writes the array; what its object says of the file."""
    if not a.size:
        return {}
    if a.dtype.hasobject:
        return {"lost": "tensor file: an array of Python objects has no bytes of its own"}
    place = spot.names.claim(spot.record, path, "npy")
    name = tensor_file_name(spot.record, "", place, "npy")
    write_parts(options.directory / name, npy_bytes(stored(np.asarray(a))))
    return {"data_name": name}
