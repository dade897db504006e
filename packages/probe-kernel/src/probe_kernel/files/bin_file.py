"""Read Ascend's ``bin`` files: the header's length (8 bytes), the header, then the bytes of every tensor in order."""

import math
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen
from probe_format.errors import DamagedError, FormatError

from .dtypes import decode, find_dtype, lies_as_it_is
from .dump_data import Parts, Tensor, parse_dump_data

Array = npt.NDArray[Any]
_MOST_HEADER = 64 << 20
_NANO = 0x5A5A5A5A


def mapped(path: Path, offset: int = 0, most: int | None = None) -> Array:
    """Return the bytes of a file: uint8, one dimension. They are read as they are used, so none need fit in memory.

    offset: where the first byte is in the file.
    most: the largest number of bytes to return; the file may have fewer.

    Raises OSError.
    """
    size = max(path.stat().st_size - offset, 0)
    size = size if most is None else min(size, most)
    return np.asarray(np.memmap(path, np.uint8, "r", offset, (size,))) if size else np.empty(0, np.uint8)


@frozen
class Section:
    """Locate one tensor, buffer or work space of a file.

    io: ``input``, ``output``, ``l1buffer`` or ``space``.
    slot: its index among those of its ``io``, from 0.
    offset, size: where its bytes are in the file.
    tensor: its description; None for a buffer or work space.
    inline: the bytes themselves, in files of the first version.
    """

    path: Path
    io: str
    slot: int
    offset: int
    size: int
    tensor: Tensor | None = None
    inline: bytes | None = None

    def raw(self) -> Array:
        """Return its bytes: uint8, one dimension. Raises DamagedError when they are cut short, OSError."""
        if self.inline is not None:
            return np.frombuffer(self.inline, np.uint8)
        found = mapped(self.path, self.offset, self.size)
        if found.size != self.size:
            raise DamagedError(f"{self.path}: {self} is cut short ({found.size} of {self.size} bytes).")
        return found

    def dtype_in_file(self) -> np.dtype[Any] | None:
        """Return numpy's dtype of its elements; None where they do not lie in the file as numpy has them."""
        if self.tensor is None or self.inline is not None:
            return None
        dtype = find_dtype(self.tensor.dtype)
        if dtype is None or not lies_as_it_is(dtype) or dtype.size(math.prod(self.tensor.shape)) != self.size:
            return None
        return np.dtype(dtype.base)

    def load(self) -> Array:
        """Return its values in the shape that they have on the device.

        Dtypes that numpy does not have are decoded as by `dtypes.decode`.

        Raises FormatError when the dtype has no values (resource, string), DamagedError when the file is cut short,
        OSError when it cannot be read.
        """
        if self.tensor is None:
            return self.raw()
        dtype = find_dtype(self.tensor.dtype)
        if dtype is None:
            raise FormatError(f"{self.path}: {self} is of dtype {self.tensor.dtype}, which is not a number.")
        count = math.prod(self.tensor.shape)
        if dtype.size(count) != self.size:
            wanted = f"{dtype.name} {list(self.tensor.shape)} has {dtype.size(count)}"
            raise DamagedError(f"{self.path}: {self} has {self.size} bytes, and {wanted}.")
        return decode(self.raw(), dtype, self.tensor.shape, f"{self.path}: {self}")

    def __str__(self) -> str:
        return f"{self.io}.{self.slot}"


@frozen
class BinFile:
    """Tell where the tensors of a file are. None is read before it is loaded.

    op_name: the full name of the operator.
    problems: bytes that the header does not describe, in sentences; the tensors can be read all the same.
    """

    op_name: str
    sections: tuple[Section, ...]
    problems: tuple[str, ...] = ()


def open_bin(path: Path) -> BinFile:
    """Read a file's header.

    Raises DamagedError when the file is cut short or has no header, FormatError when it has another form, OSError when
    it cannot be read.
    """
    with path.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        head = file.read(12)
        if len(head) < 8:
            what = f"it has {total} bytes, and the length of a header has 8"
            raise DamagedError(f"{path} is not a dump file: {what}.")
        (length,) = struct.unpack_from("<Q", head)
        if len(head) == 12 and struct.unpack_from("<I", head, 8) == (_NANO,):
            raise FormatError(f"{path} is a dump of the Nano devices, which is not read here.")
        if length == 0:
            zeros = ", the first eight of them zero" if total > 8 else ", all zero"
            raise DamagedError(
                f"{path} has an empty header ({total} bytes{zeros}): nothing of what was dumped is in it. A full disk "
                "leaves such files."
            )
        if length > total - 8 or length > _MOST_HEADER:
            return _first_version(path, total, length)
        file.seek(8)
        message = memoryview(file.read(length))
    try:
        op_name, parts = parse_dump_data(message)
    except DamagedError as e:
        raise DamagedError(f"{path} has no readable header: {e}.") from e
    found = tuple(_sections(path, parts, 8 + length, total))
    return BinFile(op_name, found, tuple(_unaccounted(path, found, 8 + length, total)))


def _unaccounted(path: Path, sections: tuple[Section, ...], start: int, total: int) -> Iterator[str]:
    """Yield a sentence for bytes that no tensor of the header accounts for, and for a header without tensors."""
    rest = total - start - sum(section.size for section in sections if section.inline is None)
    if not sections:
        more = f", and {rest} bytes that nothing describes" if rest else ""
        yield f"{path} has a header that names no tensor{more}."
    elif rest:
        yield f"{path} has {rest} bytes behind its last tensor, {sections[-1]}, which its header does not mention."


def _first_version(path: Path, total: int, length: int) -> BinFile:
    why = f"{path} has no readable header: it would have {length} bytes, and {total - 8} follow"
    if total > 1 << 31:  # protobuf's own limit
        raise DamagedError(f"{why}.")
    try:
        with path.open("rb") as file:  # mapped, so that a damaged file need not be read into memory whole
            op_name, parts = parse_dump_data(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
    except DamagedError as e:
        raise DamagedError(f"{why}; nor is the whole file a message ({e}).") from e
    found = tuple(_sections(path, parts, 0, 0))
    if not found:
        raise DamagedError(f"{why}.")
    return BinFile(op_name, found)


def _sections(path: Path, parts: Parts, at: int, total: int) -> Iterator[Section]:
    for io, each in parts.items():
        for slot, part in enumerate(each):
            tensor = part if io in ("input", "output") else None
            if part.inline is not None:
                yield Section(path, io, slot, 0, len(part.inline), tensor, part.inline)
                continue
            if part.size > total - at:
                what = f"{io}.{slot} has {part.size} bytes from byte {at} on, and the file has {total}"
                raise DamagedError(f"{path} is cut short: {what}.")
            yield Section(path, io, slot, at, part.size, tensor)
            at += part.size
