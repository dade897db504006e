"""Is the file of a tensor whole, and is it that tensor's? Needs no framework: a .pt file is a zip."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path

import numpy as np
from attrs import define, field

from .checksum import crc32
from .errors import FormatError
from .narrow import bits_of, narrow_name
from .tensor import Tensor

__all__ = ["TensorFiles"]

_CHUNK = 1 << 20
_WIDTHS = {
    **dict.fromkeys(("bool", "uint8", "int8"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32", "complex32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}


@define
class TensorFiles:
    """Checks tensor files, each one once however many names it is linked under.

    checksums: whether ``md5`` in the records is the CRC-32 of the bytes (the header says so).
    """

    checksums: bool
    _seen: dict[tuple[int, int], int] = field(factory=dict)

    def problem(self, tensor: Tensor) -> str:
        """What is wrong with the tensor's file, in a sentence; empty when nothing is."""
        try:
            path = tensor.file
            if path is None:
                return ""
            if not path.is_file():
                return f"its file {path.name} is missing."
            return self._npy(path, tensor) if path.suffix == ".npy" else self._pt(path, tensor)
        except (OSError, EOFError, ValueError, zipfile.BadZipFile, NotImplementedError, zlib.error) as error:
            return f"its file cannot be read ({error})."
        except FormatError as error:
            return f"{error}"

    def _npy(self, path: Path, tensor: Tensor) -> str:
        array = np.load(path, allow_pickle=False, mmap_mode=None if 0 in tensor.shape else "r")
        stored = tensor.json.get("stored")  # of a sparse tensor the file holds the stored values alone
        if isinstance(stored, int):
            if array.size != stored:
                return f"its file {path.name} holds {array.size} values of {stored}."
        elif array.shape != tensor.shape:
            return f"its file {path.name} has the shape {array.shape}, not {tensor.shape}."
        if not (self.checksums and tensor.checksum):
            return ""
        narrow = narrow_name(tensor.dtype)
        if narrow is not None and array.dtype == np.float32:  # the checksum is of its own bits
            return self._compare(path, tensor, crc32(bits_of(array, narrow).data))
        if str(array.dtype) in tensor.dtype.lower():
            return self._compare(path, tensor, crc32(np.ascontiguousarray(array).data))
        return ""

    def _pt(self, path: Path, tensor: Tensor) -> str:
        stat = path.stat()
        key = (stat.st_dev, stat.st_ino)
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if not any(member.filename.endswith("/data.pkl") for member in members):
                return f"its file {path.name} is a zip but not a PyTorch file."
            if key not in self._seen:
                for member in members:
                    with archive.open(member) as stream:
                        while stream.read(_CHUNK):  # zipfile compares the CRC at the end of each member
                            pass
                self._seen[key] = 1
        storages = [member for member in members if "/data/" in member.filename]
        width = _WIDTHS.get(tensor.dtype.removeprefix("torch."))
        if width is None or tensor.type != "torch.Tensor":
            return ""
        stored = tensor.json.get("stored")  # of a sparse tensor the file holds the stored values alone
        need = (stored if isinstance(stored, int) else math.prod(tensor.shape)) * width
        found = sum(member.file_size for member in storages)
        if found < need:
            return f"its file {path.name} holds {found} bytes of {need}."
        if self.checksums and tensor.checksum and len(storages) == 1 and found == need:
            return self._compare(path, tensor, storages[0].CRC)
        return ""

    def _compare(self, path: Path, tensor: Tensor, crc: int) -> str:
        if f"{crc:08x}" == tensor.checksum:
            return ""
        return f"its file {path.name} has the CRC-32 {crc:08x}, its record says {tensor.checksum}."
