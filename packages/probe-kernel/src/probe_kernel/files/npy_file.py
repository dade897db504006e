"""Read ``.npy`` files of kernel dumpers, which write bfloat16 with a dtype that numpy does not know."""

from __future__ import annotations

import ast
import math
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from attrs import frozen
from probe_format.errors import DamagedError

from .dtypes import Dtype, decode, dtype_of, shaped

__all__ = ["Header", "load_npy", "read_header"]

_MAGIC = b"\x93NUMPY"
_MOST = 1 << 16
#: Type codes that MindSpore invented, because numpy has none.
_INVENTED = {"E2": "bfloat16"}


@frozen
class Header:
    """Hold the header of a file.

    dtype: of the values that `load_npy` returns (float32 for bfloat16).
    fortran: whether they are in Fortran order.
    offset: where the values begin, in bytes.
    stored: the dtype in the file; None where numpy has it.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int
    stored: Dtype | None = None

    @property
    def size(self) -> int:
        """Return the size of the values in bytes."""
        count = math.prod(self.shape)
        return self.stored.size(count) if self.stored else count * self.dtype.itemsize


def read_header(path: Path) -> Header:
    """Read the header alone. Raises DamagedError when the file has none, OSError when it cannot be opened."""
    with path.open("rb") as file:
        return _header(file, path)


def load_npy(path: Path) -> npt.NDArray[Any]:
    """Read the values, never unpickling; bfloat16 as float32.

    Raises DamagedError when the file is not whole, OSError when it cannot be opened.
    """
    with path.open("rb") as file:
        header = _header(file, path)
        size = path.stat().st_size - header.offset
        if size != header.size:  # before anything is allocated
            what = "is cut short" if size < header.size else "holds more than its header says"
            raise DamagedError(
                f"{path} {what}: {size} bytes of values, and {header.size} belong to {header.dtype}"
                f"{list(header.shape)}."
            )
        file.seek(header.offset)
        if header.stored is not None:
            values = decode(np.fromfile(file, np.uint8), header.stored)
        else:
            values = np.fromfile(file, header.dtype)
    return shaped(values, header.shape, str(path), "F" if header.fortran else "C")


def _header(file: BinaryIO, path: Path) -> Header:
    start = file.read(8)
    if start[:6] != _MAGIC or len(start) < 8:
        raise DamagedError(f"{path} is not a .npy file: it does not begin as one.")
    width = 2 if start[6] == 1 else 4
    length = file.read(width)
    size = struct.unpack("<H" if width == 2 else "<I", length)[0] if len(length) == width else 0
    text = file.read(size) if size <= _MOST else b""
    if not text or len(text) < size:
        raise DamagedError(f"{path} is cut short in its header.")
    try:
        fields = ast.literal_eval(text.decode("latin1").strip())
        descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"the shape {shape!r} is not one of numbers from 0 up")
        stored = dtype_of(_INVENTED[descr[1:]]) if descr[1:] in _INVENTED else None
        dtype = np.dtype(np.float32) if stored else np.dtype(descr)
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise DamagedError(f"{path} has a header that is not one of a .npy file ({error}).") from error
    if dtype.hasobject or (stored is None and dtype.itemsize == 0):
        raise DamagedError(f"{path} says that it holds {dtype}, which no dump does.")
    return Header(dtype, shape, bool(fortran), 8 + width + size, stored)
