"""Describe a numpy array as it is in a record, and write its file."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.jsonio import dumps, encode, members
from probe_format.tensors import array_object, npy_bytes, numbers_in, stored
from probe_format.values import ValuePath
from probe_format.write import Coverage

from .leaf import Placement
from .step_files import StepFiles
from .tensor_options import TensorOptions
from .two_at_once import LARGE, run_both

__all__ = ["array_json", "plain_array"]

Array = npt.NDArray[Any]
_PLAIN = (np.dtype(np.float32), np.dtype(np.float64))


def array_json(
    a: Array,
    placement: Placement,
    path: ValuePath,
    options: TensorOptions,
    files: StepFiles,
    coverage: Coverage,
    summarise: Callable[[Placement, ValuePath, dict[str, Any]], None] | None = None,
) -> bytes:
    """Return the tensor object of an array of any shape and dtype (spec/statistics.md).

    a: the array.
    placement: the part of a record; where it wants a file, that is written.
    path: the path of the array in that part.
    options: what to describe.
    files: writes the file.
    coverage: counts the array.
    summarise: takes its numbers.

    Raises OSError when the file cannot be written.
    """
    describe = partial(
        array_object,
        a,
        statistics=options.statistics,
        checksum=options.checksum,
        zero_count=options.zero_count,
    )
    file = b""
    if not placement.wants_file:
        body = describe()
    elif options.overlap and a.nbytes >= LARGE:
        body, file = run_both(describe, partial(_write_file, a, placement, path, files))
    else:
        body, file = describe(), _write_file(a, placement, path, files)
    if "unsupported" in body:
        coverage.add("unsupported", f"array: {body['unsupported']}")
    coverage.outcome("arrays", "recorded")
    if summarise is not None:
        summarise(placement, path, body)
    return dumps(body)[:-1] + file + b"}"


def _write_file(a: Array, placement: Placement, path: ValuePath, files: StepFiles) -> bytes:
    """Write the array; return the members that its object gets for the file."""
    if not a.size:
        return b""
    if a.dtype.hasobject:
        return members({"lost": "tensor file: an array of Python objects has no bytes of its own"})
    return files.save(placement, path, "npy", npy_bytes(stored(np.asarray(a))))


def plain_array(a: Any) -> tuple[bytes, float] | None:
    """Return the finished JSON of an ordinary array with its statistics, as `array_json` has them, and its norm.

    Returns None where ``a`` is no array of contiguous floats, is empty, or has a number that is not finite.
    """
    if type(a) is not np.ndarray or a.dtype not in _PLAIN or not (a.size and a.flags.c_contiguous):
        return None
    numbers = numbers_in(a.reshape(-1))
    if numbers is None:
        return None
    high, low, mean, norm = numbers
    body = encode({"Max": high, "Min": low, "Mean": mean, "Norm": norm})
    return _opening(a.dtype, a.shape) + body[1:], norm


@lru_cache(maxsize=1024)
def _opening(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the JSON of a plain array up to its numbers."""
    return dumps({"type": "numpy.ndarray", "dtype": str(dtype), "shape": list(shape)})[:-1] + b","
