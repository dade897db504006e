"""Describe a numpy array as it is in a record, and write its file."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.jsonio import dumps, encode, members
from probe_format.statistics import WHOLE
from probe_format.tensors import array_object, npy_bytes, numbers_in, stored
from probe_format.values import ValuePath
from probe_format.write import Coverage

from .file_queue import LARGE, run_both
from .placement import Placement
from .step_files import StepFiles
from .tensor_options import TensorOptions

Array = npt.NDArray[Any]
_PLAIN = (np.dtype(np.float32), np.dtype(np.float64))


def array_json(
    a: Array,
    placement: Placement,
    path: ValuePath,
    options: TensorOptions,
    files: StepFiles,
    coverage: Coverage,
    summarise: Callable[[Placement, ValuePath, dict[str, Any]], None],
) -> bytes:
    """Return the tensor object of an array of any shape and dtype (spec/statistics.md).

    a: the array.
    placement: the part of a record; where it wants a file, that is written.
    path: the path of the array in that part.
    options: what to describe.
    files: writes the file.
    coverage: counts the array.
    summarise: takes its numbers.

    Raises OSError when the disk is full.
    """
    file = b""
    if not placement.wants_file:
        text, body = _described(a, options)
    else:
        describe, write = partial(_described, a, options), partial(_write_file, a, placement, path, files)
        large = options.overlap and a.nbytes >= LARGE
        (text, body), file = run_both(describe, write) if large else (describe(), write())
    if "unsupported" in body:
        coverage.add("unsupported", f"array: {body['unsupported']}")
    coverage.outcome("arrays", "recorded")
    summarise(placement, path, body)
    return b"%b%b}" % (text, file)


def _described(a: Array, options: TensorOptions) -> tuple[bytes, dict[str, Any]]:
    """Return the JSON of an array's object without its end, and the object or, of a plain one, its numbers."""
    only_four = options.statistics and not (options.checksum or options.zero_count)
    if only_four and type(a) is np.ndarray and a.dtype in _PLAIN and a.size and a.flags.c_contiguous:
        numbers = numbers_in(a.reshape(-1))
        if numbers is not None:
            body: dict[str, Any] = dict(zip(WHOLE, numbers, strict=True))
            opening, name = _opening(a.dtype, a.shape)
            text = opening + encode(body)[1:-1]
            body["dtype"] = name
            return text, body
    body = array_object(
        a, statistics=options.statistics, checksum=options.checksum, zero_count=options.zero_count
    )
    return dumps(body)[:-1], body


def _write_file(a: Array, placement: Placement, path: ValuePath, files: StepFiles) -> bytes:
    """Write the array; return the members that its object gets for the file."""
    if not a.size:
        return b""
    if a.dtype.hasobject:
        return members({"lost": "tensor file: an array of Python objects has no bytes of its own"})
    return files.save(placement, path, "npy", npy_bytes(stored(np.asarray(a))))


@lru_cache(maxsize=1024)
def _opening(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[bytes, str]:
    """Return the JSON of a plain array up to its numbers, and the name of its dtype."""
    name = str(dtype)
    return dumps({"type": "numpy.ndarray", "dtype": name, "shape": list(shape)})[:-1] + b",", name
