"""Check that a tensor's file is whole and belongs to its record, without a framework and without unpickling."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from attrs import define, field

from probe_format.errors import FormatError
from probe_format.excerpts import brief
from probe_format.plain_files import is_file, refuse_link
from probe_format.tensors.checksum import crc32
from probe_format.tensors.narrow_floats import bits_of, narrow_name
from probe_format.tensors.npy_file import map_npy
from probe_format.tensors.pt_file import PT_DTYPES

from .tensor import Tensor

if TYPE_CHECKING:
    from probe_format.tensors.pt_read import PtContent
    from probe_format.tensors.pt_tensor import PtTensor

__all__ = ["TensorFiles"]

#: Dtypes whose names are the same in numpy and in the frameworks, apart from upper case.
_NUMPY = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
}
#: Bytes per element of the dtypes that torch saves in a special way, or cannot save.
_WIDTHS = {"complex32": 4, "qint8": 1, "quint8": 1, "qint32": 4}


@define
class TensorFiles:
    """Check tensor files, each ``.pt`` file once, however many names are linked to it.

    checksums: whether ``md5`` in the records is the CRC-32 of the bytes (the header says so).
    """

    checksums: bool
    _seen: dict[tuple[int, int], PtContent] = field(factory=dict)

    def problem(self, tensor: Tensor) -> str:
        """Return what is wrong with the tensor's file, in a sentence; empty when nothing is."""
        try:
            path = tensor.file
            if path is None:
                return ""
            if not is_file(path):
                return f"its file {path.name} is missing."
            refuse_link(path)
            return self._npy(path, tensor) if path.suffix == ".npy" else self._pt(path, tensor)
        except (OSError, ValueError, MemoryError) as error:
            return f"its file cannot be read ({error})."
        except FormatError as error:
            return f"its file cannot be read: {error}"

    def _npy(self, path: Path, tensor: Tensor) -> str:
        array = map_npy(path)
        narrow = narrow_name(tensor.dtype)
        stored = tensor.json.get("stored")  # the file of a sparse tensor holds only its stored values
        if isinstance(stored, int):
            if array.size != stored:
                return f"its file {path.name} holds {array.size} values of {stored}."
        elif array.shape != tensor.shape:
            return f"its file {path.name} has the shape {array.shape}, not {brief(tensor.shape)}."
        wanted = "float32" if narrow is not None else tensor.dtype.removeprefix("torch.").lower()
        if wanted in _NUMPY and str(array.dtype) != wanted:
            return (
                f"its file {path.name} holds {brief(str(array.dtype))}, not the {wanted} of {tensor.dtype}."
            )
        if tensor.dtype[:1] in ("<", ">", "|") and str(array.dtype) != tensor.dtype:
            return f"its file {path.name} holds {brief(str(array.dtype))}, not {brief(tensor.dtype)}."
        if not (self.checksums and tensor.checksum):
            return ""
        if narrow is not None:  # the checksum is that of the narrow dtype's bits
            return self._compare(path, tensor, crc32(bits_of(array, narrow).data))
        if wanted in _NUMPY:
            return self._compare(path, tensor, crc32(np.ascontiguousarray(array).data))
        return ""

    def _pt(self, path: Path, tensor: Tensor) -> str:
        stat = path.stat()
        key = (stat.st_dev, stat.st_ino)
        if key not in self._seen:
            from probe_format.tensors.pt_read import read_pt  # not every dump has .pt files

            self._seen[key] = read_pt(path)
        content = self._seen[key]
        found = content.tensors[0]
        if not found.plain or content.crc is None:  # sparse or quantised, by msprobe
            return ""
        local = "global_shape" in tensor.json  # a DTensor, whose file has the local part as its record has
        problem = _differs(found, tensor) if tensor.type == "torch.Tensor" or local else ""
        if problem:
            return f"its file {path.name} {problem}."
        if self.checksums and tensor.checksum:
            return self._compare(path, tensor, content.crc)
        return ""

    def _compare(self, path: Path, tensor: Tensor, crc: int) -> str:
        if f"{crc:08x}" == tensor.checksum:
            return ""
        return f"its file {path.name} has the CRC-32 {crc:08x}, its record says {brief(tensor.checksum)}."


def _differs(found: PtTensor, tensor: Tensor) -> str:
    """Return how the form of the tensor in a file differs from its record; empty when it does not."""
    wanted = tensor.dtype.removeprefix("torch.")
    if wanted in PT_DTYPES and found.dtype != wanted:
        return f"holds {found.dtype}, not {wanted}"
    stored = tensor.json.get("stored")  # the file of a sparse tensor holds only its stored values
    if isinstance(stored, int):
        return "" if found.count == stored else f"holds {found.count} values of {brief(stored)}"
    if wanted in PT_DTYPES:
        return (
            "" if found.shape == tensor.shape else f"has the shape {found.shape}, not {brief(tensor.shape)}"
        )
    width = _WIDTHS.get(wanted)  # saved as another dtype: the sizes in bytes must agree
    if width is None or found.count * found.width == math.prod(tensor.shape) * width:
        return ""
    return f"holds {found.count * found.width} bytes, not those of {wanted}{brief(list(tensor.shape))}"
