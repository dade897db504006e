"""Read the tensors of a kernel dump's file: one reader for each kind of file.

A kind that needs a parser of its own gets one by an entry in `READERS`.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen
from probe_format.errors import DamagedError
from probe_format.tensors import load_pt, map_npy, npy_header

from probe_kernel.files.bin_file import Section, mapped, open_bin
from probe_kernel.files.dtypes import decode, dtype_of
from probe_kernel.files.dump_data import Tensor

from .file_name import FileName, Kind

Array = npt.NDArray[Any]
Shape = tuple[int, ...] | None


@frozen
class Part:
    """Describe one tensor in a file.

    io: ``input`` or ``output``.
    slot: which of them, from 0.
    format, dtype: empty where the file does not have them.
    shape: returns the shape from the file's header alone; None where the file does not have it.
    load: returns the values; takes the shape that the statistics have, for files without one.

    Both functions raise FormatError (DamagedError when the file is not whole) and OSError.
    """

    io: str
    slot: int
    format: str
    dtype: str
    shape: Callable[[], Shape]
    load: Callable[[Shape], Array]


Contents = tuple[tuple[Part, ...], tuple[str, ...]]
Reader = Callable[[Path, FileName], Contents]


def contents(path: Path, name: FileName) -> Contents:
    """Return the tensors in a file, and bytes that belong to none, in sentences. Some kinds hold no tensor.

    Raises FormatError when it cannot be read.
    """
    return READERS[name.kind](path, name) if name.kind in READERS else ((), ())


def _load_raw(path: Path, dtype_name: str, shape: Shape) -> Array:
    dtype = dtype_of(dtype_name)
    raw = mapped(path)
    if shape is None and not raw.size:
        what = "is empty, and nothing says that its tensor is. A full disk leaves such files."
        raise DamagedError(f"{path} {what}")
    need = raw.size if shape is None else dtype.size(math.prod(shape))
    if raw.size != need or raw.size * 8 % max(dtype.bits, 8):
        wanted = dtype.name if shape is None else f"{dtype.name}{list(shape)}"
        raise DamagedError(f"{path} has {raw.size} bytes, which is not {wanted}.")
    return decode(raw, dtype, shape, str(path))


def _pt(path: Path, name: FileName) -> Contents:
    def values(_: Shape) -> Array:
        value = load_pt(path)
        return np.asarray(value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy())

    return _one(name, lambda: name.shape, values)


def _bin(path: Path, name: FileName) -> Contents:
    file = open_bin(path)
    return tuple(_section(each, each.tensor) for each in file.sections if each.tensor), file.problems


def _section(section: Section, tensor: Tensor) -> Part:
    about = section.io, section.slot, tensor.format, tensor.dtype
    return Part(*about, lambda: tensor.shape, lambda _: section.load())


def _part_of_bin(path: Path, name: FileName) -> Contents:
    if name.io not in ("input", "output"):
        return (), ()  # buffers and work space: no tensors of the kernel

    def values(_: Shape) -> Array:
        # msaccucmp writes bfloat16 as float32, and float8 as float64, under the name of the original dtype.
        wider = _WIDENED.get(dtype_of(name.dtype).name, "")
        count = math.prod(name.shape or ())
        if wider and count and path.stat().st_size == dtype_of(wider).size(count):
            return _load_raw(path, wider, name.shape).astype(np.float32)
        return _load_raw(path, name.dtype, name.shape)

    return _one(name, lambda: name.shape, values)


_WIDENED = {"bfloat16": "float32", "float8_e5m2": "float64", "float8_e4m3fn": "float64"}


def _one(name: FileName, shape: Callable[[], Shape], load: Callable[[Shape], Array]) -> Contents:
    return (Part(name.io, name.slot or 0, name.format, name.dtype, shape, load),), ()


READERS: dict[Kind, Reader] = {
    "npy": lambda path, name: _one(name, lambda: npy_header(path).shape, lambda _: map_npy(path)),
    "raw": lambda path, name: _one(name, lambda: None, partial(_load_raw, path, name.dtype)),
    "pt": _pt,
    "bin": _bin,
    "part": _part_of_bin,
}
