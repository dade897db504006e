"""Read the form of the tensor in a ``.pt`` file and its bytes' checksum, without torch and without unpickling."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from probe_format.checksum import crc32
from probe_format.errors import DamagedError, FormatError

from .pt_archive import Member, read_archive
from .pt_tensor import PtTensor, tensors_of

_SMALL = 1 << 16
_VERSIONS = range(1, 11)
#: How a file begins that torch.save wrote before torch 1.6: its first pickle is this number.
_BEFORE_ZIP = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."


@frozen
class PtContent:
    """Describe the content of a ``.pt`` file.

    tensors: one, or the parts of a sparse or quantised one.
    crc: of a single tensor's elements in C order.
    start: where its storage begins in the file, in bytes.
    """

    tensors: tuple[PtTensor, ...]
    crc: int | None
    start: int

    def elements(self, path: Path | str) -> npt.NDArray[np.void]:
        """Return a single tensor's elements, each of as many bytes as its dtype has, mapped from the file."""
        found = self.tensors[0]
        if not found.count:
            return np.empty(found.shape, (np.void, found.width))
        raw: Any = np.memmap(
            path, (np.void, found.width), "r", self.start + found.offset * found.width, _reach(found)
        )
        stride = [n * found.width for n in found.stride]
        return np.lib.stride_tricks.as_strided(raw, found.shape, stride, writeable=False)


def read_pt(path: Path | str) -> PtContent:
    """Check a ``.pt`` file, its checksums included, and return its content.

    Raises DamagedError when it is not whole, FormatError when it holds something other than a tensor by torch.save,
    OSError when it cannot be opened.
    """
    with open(path, "rb") as file:
        if file.read(len(_BEFORE_ZIP)) == _BEFORE_ZIP:
            form = "has the form that torch.save wrote before torch 1.6, without checksums"
            raise DamagedError(f"{path} {form}; load it with torch, and save it again.")
        try:
            members = read_archive(file, os.fstat(file.fileno()).st_size)
            tensors = _tensors(file, members)
        except DamagedError as error:
            raise DamagedError(f"{path} is not a whole PyTorch file: {error}.") from None
        except FormatError as error:
            raise FormatError(f"{path} cannot be checked: {error}.") from None
        storage = members[tensors[0].storage]
        content = PtContent(tensors, None, storage.start)
        return evolve(content, crc=_crc(path, content, storage)) if len(tensors) == 1 else content


def _tensors(file: BinaryIO, members: dict[str, Member]) -> tuple[PtTensor, ...]:
    for name in ("data.pkl", "version"):
        if name not in members:
            raise DamagedError(f"it lacks its member {name}")
    version = _content(file, members["version"]).strip()
    if not version.isdigit() or len(version) > 2 or int(version) not in _VERSIONS:
        raise FormatError(f"it is of version {version[:20].decode('latin-1')!a}, which is not known here")
    order = members.get("byteorder")
    if order is not None and _content(file, order) != b"little":
        raise FormatError("its byte order is not that of this machine")
    sizes = {name: member.size for name, member in members.items() if name.startswith("data/")}
    return tensors_of(_content(file, members["data.pkl"]), sizes)


def _content(file: BinaryIO, member: Member) -> bytes:
    if member.size > _SMALL:
        raise FormatError(f"a part of it that describes the tensor has {member.size} bytes")
    file.seek(member.start)
    return file.read(member.size)


def _crc(path: Path | str, content: PtContent, member: Member) -> int:
    """Return the CRC-32 of the tensor's elements alone: a view is stored with the whole of its base."""
    tensor = content.tensors[0]
    if tensor.contiguous and tensor.count * tensor.width == member.size:
        return member.crc
    elements = np.ascontiguousarray(content.elements(path))
    return crc32(elements.reshape(-1).view(np.uint8).data) if elements.size else 0


def _reach(tensor: PtTensor) -> int:
    """Return how many elements lie between the tensor's first and its last one, both counted."""
    return 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride, strict=True))
