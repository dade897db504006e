"""Compute a line of a statistic.csv from the tensor of a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
from probe_format.errors import FormatError

from probe_kernel.files.dtypes import dtype_of

from .computed_statistics import numbers
from .kernel import TensorSlot
from .statistic_line import Row

__all__ = ["row"]


def row(slot: TensorSlot, categories: Sequence[str]) -> Row:
    """Compute the line of one tensor. Raises like `TensorSlot.load`."""
    kernel, array = slot.kernel, slot.load()
    return Row(
        kernel.op_type,
        kernel.name,
        kernel.task,
        kernel.stream,
        slot.timestamp,
        slot.io,
        slot.index,
        slot.dtype.lower() or array.dtype.name,
        array.shape,
        _size(array, slot.dtype),
        slot.format,
        numbers(array, categories, slot.dtype),
    )


def _size(array: npt.NDArray[Any], dtype: str) -> int:
    """Return the bytes that the tensor had on the device: two for each bfloat16, though its file has four."""
    try:
        return dtype_of(dtype).size(math.prod(array.shape))
    except FormatError:  # unknown, or not in the name
        return array.nbytes
