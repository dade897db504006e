"""Read ``.npy`` files strictly: nothing is allocated before the file has the size that its header promises."""

import ast
import math
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from attrs import frozen

from probe_format.errors import DamagedError
from probe_format.safe_files import naming

from .narrow_floats import widen
from .pack import Place, mapped, opened

_MAGIC = b"\x93NUMPY"
#: Bytes that a header may have; numpy has the same limit.
_MOST = 10_000
_MOST_DIMENSIONS = 64
_MOST_FIELDS = 100
#: What MindSpore writes for bfloat16, because numpy has nothing.
_BFLOAT16 = "<E2"
#: Numbers, bools, texts, bytes and times; no objects.
_DESCR = re.compile(r"[<>|](?:[biufcSUV][0-9]{1,9}|[mM]8(?:\[[0-9]{0,9}[a-zA-Zμ]{1,7}\])?)")


@frozen
class NpyHeader:
    """Describe the values of a ``.npy`` file.

    dtype: in the file.
    fortran: whether the first index runs fastest.
    offset: where the values begin, in bytes.
    narrow: the dtype that the elements are bits of, where numpy has none.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int
    narrow: str = ""

    @property
    def size(self) -> int:
        """Return the size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def npy_header(path: Place) -> NpyHeader:
    """Read the header alone; the file may be shorter than it says. Raises like `load_npy`."""
    with _named(path), opened(path) as file:
        return _header(file)


def _header(file: IO[bytes]) -> NpyHeader:
    start = file.read(8)
    if start[:6] != _MAGIC or start[6:] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise DamagedError("it does not begin as one")
    form = struct.Struct("<H" if start[6] == 1 else "<I")
    raw = file.read(form.size)
    length = form.unpack(raw)[0] if len(raw) == form.size else 0
    if length > _MOST:
        raise DamagedError(f"its header has {length} bytes, and no header has more than {_MOST}")
    text = file.read(length)
    if not text or len(text) < length:
        raise DamagedError("it is cut short in its header")
    dtype, fortran, shape, narrow = _fields(text, "utf-8" if start[6] == 3 else "latin-1")
    return NpyHeader(dtype, shape, fortran, 8 + form.size + length, narrow)


def _whole(file: IO[bytes]) -> NpyHeader:
    """Read the header, and check that the file is as long as it says."""
    header = _header(file)
    found = file.seek(0, os.SEEK_END) - header.offset
    file.seek(header.offset)
    if found != header.size:
        what = "is cut short" if found < header.size else "holds more than its header says"
        wanted = header.size if header.size < 1 << 64 else "far more"  # than a message could hold in digits
        raise DamagedError(f"it {what}: it has {found} bytes of values, and {wanted} belong there")
    return header


@contextmanager
def _named(path: Place) -> Iterator[None]:
    try:
        with naming(str(path)):  # also what closing the file raises
            yield
    except (DamagedError, ValueError) as error:
        raise DamagedError(f"{path} is not a whole .npy file: {error}.") from error


def _fields(text: bytes, encoding: str) -> tuple[np.dtype[Any], bool, tuple[int, ...], str]:
    try:
        fields = ast.literal_eval(text.decode(encoding).strip(" \n"))
        if not isinstance(fields, dict) or fields.keys() != {"descr", "fortran_order", "shape"}:
            raise ValueError("it has other keys than descr, fortran_order and shape")
        fortran, shape = fields["fortran_order"], fields["shape"]
        if type(fortran) is not bool or not isinstance(shape, tuple) or len(shape) > _MOST_DIMENSIONS:
            raise ValueError("its shape or its order cannot be")
        if not all(type(n) is int and 0 <= n < 1 << 63 for n in shape):
            raise ValueError("its shape cannot be")
        narrow = "bfloat16" if fields["descr"] == _BFLOAT16 else ""
        dtype = _dtype("<u2" if narrow else fields["descr"])
        if math.prod(max(n, 1) for n in shape) * max(dtype.itemsize, 1) >= 1 << 63:
            raise ValueError("its shape is too large for any array")
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise DamagedError(f"its header is not one ({str(error)[:100]})") from None
    return dtype, fortran, shape, narrow


def _dtype(descr: Any, depth: int = 0) -> np.dtype[Any]:
    """Return the dtype of a descriptor as numpy writes it; a structured one from its fields' dtypes."""
    if isinstance(descr, str) and _DESCR.fullmatch(descr):
        dtype = np.dtype(descr)
        if dtype.str != descr:
            raise ValueError(f"numpy would write {dtype.str!r} for {descr!r}")
        return dtype
    if not isinstance(descr, list) or depth > 4 or not 0 < len(descr) <= _MOST_FIELDS:
        raise ValueError("it has no dtype that numpy writes")
    for field in descr:
        if not isinstance(field, tuple) or len(field) not in (2, 3):
            raise ValueError("it has no dtype that numpy writes")
        for inner in field[2:]:
            if not isinstance(inner, tuple) or not all(type(n) is int and 0 <= n < 1 << 31 for n in inner):
                raise ValueError("it has a field of no shape")
        _dtype(field[1], depth + 1)
    whole: np.dtype[Any] = np.lib.format.descr_to_dtype(descr)
    return whole


def load_npy(path: Place) -> npt.NDArray[Any]:
    """Read the array, never unpickling; bfloat16 as float32.

    Raises DamagedError when the file is not whole, OSError when it cannot be opened.
    """
    with _named(path), opened(path) as file:
        header = _whole(file)
        values = np.empty(math.prod(header.shape), header.dtype) if header.size else None
        if values is not None and file.readinto(values.view(np.uint8)) < header.size:  # type: ignore[attr-defined]
            raise DamagedError("it became shorter meanwhile")
        return _shaped(values, header)


def map_npy(path: Place) -> npt.NDArray[Any]:
    """Map the array into memory: its bytes are read when they are used. Raises like `load_npy`."""
    with _named(path), opened(path) as file:
        header = _whole(file)
        values = mapped(path, header.dtype, header.offset, math.prod(header.shape)) if header.size else None
        return _shaped(values, header)


def _shaped(values: npt.NDArray[Any] | None, header: NpyHeader) -> npt.NDArray[Any]:
    if values is None:
        if math.prod(header.shape) > _MOST:  # elements without bytes: a tiny file can claim any number
            raise ValueError(f"it has {math.prod(header.shape)} values of no bytes")
        values = np.zeros(math.prod(header.shape), header.dtype)
    if header.narrow:
        values = widen(values, header.narrow)
    return values.reshape(header.shape, order="F" if header.fortran else "C")
