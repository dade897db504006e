"""Describe a numpy array as it is in a record, and write its file."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.jsonio import dumps, members
from probe_format.tensors import array_object, npy_bytes, stored
from probe_format.values import ValuePath
from probe_format.write import Coverage

from .file_queue import LARGE, run_both
from .placement import Placement
from .step_files import StepFiles
from .tensor_options import TensorOptions

Array = npt.NDArray[Any]


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
    o = options
    asked = partial(array_object, statistics=o.statistics, zero_count=o.zero_count, sketch=o.sketch)
    describe = partial(asked, a, checksum=o.checksum)
    write = partial(_write_file, a, placement, path, files)
    if placement.wants_file and o.overlap and a.nbytes >= LARGE:
        body, file = run_both(describe, write)
    else:
        body, file = describe(), write()
    if "unsupported" in body:
        coverage.add("unsupported", f"array: {body['unsupported']}")
    coverage.outcome("arrays", "recorded")
    summarise(placement, path, body)
    return b"%b%b}" % (dumps(body)[:-1], file)


def _write_file(a: Array, placement: Placement, path: ValuePath, files: StepFiles) -> bytes:
    """Write the array if a file is wanted; return the members that its object gets for it."""
    if not (placement.wants_file and a.size):
        return b""
    if a.dtype.hasobject:
        return members({"lost": "tensor file: an array of Python objects has no bytes of its own"})
    return files.save(placement, path, "npy", npy_bytes(stored(np.asarray(a))))
