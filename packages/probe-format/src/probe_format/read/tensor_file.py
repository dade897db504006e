"""Check that a tensor's file is whole and belongs to its record, without a framework and without unpickling."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from attrs import define, field

from probe_format.checksum import crc32, stream_crc32
from probe_format.errors import FormatError, TooLargeError
from probe_format.excerpts import brief
from probe_format.plain_files import in_memory, is_file, refuse_link
from probe_format.statistics import TABLE
from probe_format.tensors.narrow_floats import bits_of, narrow_name, widen
from probe_format.tensors.npy_file import map_npy
from probe_format.tensors.pack import Entry, opened
from probe_format.tensors.pt_file import PT_DTYPES, WIDTHS
from probe_format.tensors.stats import Stats, stats_of

from .tensor import Tensor

if TYPE_CHECKING:
    from probe_format.tensors.pt_read import PtContent
    from probe_format.tensors.pt_tensor import PtTensor

#: Dtypes whose names are the same in numpy and in the frameworks, apart from upper case.
_NUMPY = {dtype for dtype in PT_DTYPES if dtype != "bfloat16" and "float8" not in dtype}


@define
class TensorFiles:
    """Check tensor files, each ``.pt`` file once, however many names are linked to it.

    checksums: whether ``md5`` in the records is the CRC-32 of the bytes (the header says so).
    own: whether Probe wrote the dump, and its numbers are those of its specification.
    """

    checksums: bool
    own: bool
    _seen: dict[tuple[object, ...], PtContent] = field(factory=dict)
    _sums: dict[tuple[object, ...], str] = field(factory=dict)

    def problem(self, tensor: Tensor) -> str:
        """Return what is wrong with the tensor's file, in a sentence; empty when nothing is."""
        try:
            path = tensor.place
            if path is None:
                return ""
            if isinstance(path, Path):
                if not is_file(path):
                    return f"its file {path.name} is missing."
                refuse_link(path)
            with in_memory(str(path)):
                found = next(self._problems(path, tensor), "")
            return found and f"its file {path.name} {found}."
        except (OSError, ValueError, OverflowError) as error:
            return f"its file cannot be read ({error})."
        except TooLargeError:
            raise
        except FormatError as error:
            return f"its file cannot be read: {error}"

    def _problems(self, path: Path | Entry, tensor: Tensor) -> Generator[str]:
        """Yield what is wrong with the file, the most telling first."""
        values = yield from self._npy(path, tensor) if path.suffix == ".npy" else self._pt(path, tensor)
        wanted, key = tensor.json.get("data_crc32"), _content_of(path)
        if wanted is not None:
            if key not in self._sums:
                with opened(path) as file:
                    self._sums[key] = stream_crc32(file)
            found = self._sums[key]
            if found != wanted:
                yield f"was changed: its CRC-32 is {found}, and was {brief(wanted)}"
        if values is not None and "unsupported" not in tensor.json:
            true = stats_of(values, sketch="sketch" in tensor.json)
            yield from self._numbers(tensor, true)
            sketch = tensor.json.get("sketch") if self.own and values.dtype.kind == "f" else None
            if sketch is not None and not _near(true.sketch, sketch):
                yield "has another sketch than its record"

    def _npy(self, path: Path | Entry, tensor: Tensor) -> Generator[str, None, npt.NDArray[Any] | None]:
        """Yield what is wrong with the form and the checksum of the elements; return them where they are numbers."""
        array = map_npy(path)
        narrow = narrow_name(tensor.dtype)
        if problem := _misshapen(array.shape, tensor):
            yield problem
        wanted = "float32" if narrow is not None else tensor.dtype.removeprefix("torch.").lower()
        if wanted in _NUMPY and str(array.dtype) != wanted:
            yield f"holds {brief(str(array.dtype))}, not the {wanted} of {tensor.dtype}"
        if tensor.dtype[:1] in ("<", ">", "|") and str(array.dtype) != tensor.dtype:
            yield f"holds {brief(str(array.dtype))}, not {brief(tensor.dtype)}"
        if narrow is not None:  # the checksum is that of the narrow dtype's bits
            yield from self._compare(tensor, lambda: crc32(bits_of(array, narrow).data))
        elif wanted in _NUMPY:
            yield from self._compare(tensor, lambda: crc32(np.ascontiguousarray(array).data))
        return array if wanted in _NUMPY else None

    def _pt(self, path: Path | Entry, tensor: Tensor) -> Generator[str, None, npt.NDArray[Any] | None]:
        key = _content_of(path)
        if key not in self._seen:
            from probe_format.tensors.pt_read import read_pt  # not every dump has .pt files

            self._seen[key] = read_pt(path)
        content = self._seen[key]
        found, crc = content.tensors[0], content.crc
        if not found.plain or crc is None:  # sparse or quantised, by msprobe
            return None
        local = "global_shape" in tensor.json  # a DTensor, whose file has the local part as its record has
        problem = _differs(found, tensor) if tensor.type == "torch.Tensor" or local else ""
        if problem:
            yield problem
        yield from self._compare(tensor, lambda: crc)
        narrow = narrow_name(found.dtype)
        if found.dtype != tensor.dtype.removeprefix("torch.") or not (narrow or found.dtype in _NUMPY):
            return None  # bytes of another dtype, or one that numpy has not
        elements = np.ascontiguousarray(content.elements(path))
        if narrow is None:
            return elements.view(found.dtype)
        return widen(elements.view(f"u{found.width}"), narrow)

    def _compare(self, tensor: Tensor, crc: Callable[[], int]) -> Iterator[str]:
        if self.checksums and tensor.checksum and (found := f"{crc():08x}") != tensor.checksum:
            yield f"has the CRC-32 {found}, its record says {brief(tensor.checksum)}"

    def _numbers(self, tensor: Tensor, true: Stats) -> Iterator[str]:
        near = 1e-3 * max(abs(true.max or 0), abs(true.min or 0))  # what is left where elements cancel out
        for name, close in ((each.key, each.near) for each in TABLE if each.near):
            found, said, off = getattr(true, name.lower()), tensor.statistic(name), near * (name == "Mean")
            if found is None or said is None:
                continue
            # msprobe computes some in the tensor's dtype
            sure = self.own or (math.isfinite(found) and math.isfinite(said) and name != "Norm")
            same = math.isclose(found, said, rel_tol=close, abs_tol=off) or (found != found and said != said)
            if sure and not same:
                yield f"has the {name} {found}, its record says {said}"


def _near(found: list[float] | None, said: list[float]) -> bool:
    return found is not None and np.allclose(found, said, 1e-5, 1e-9 * max(map(abs, found)))


def _content_of(path: Path | Entry) -> tuple[object, ...]:
    """Return a key for a file's content: it is the same for all names (links, entries) of that content."""
    if isinstance(path, Entry):
        return path.path, path.start
    stat = path.stat()
    return stat.st_dev, stat.st_ino


def _misshapen(shape: tuple[int, ...], tensor: Tensor) -> str:
    """Return how the shape of the values in a file differs from its record; empty when it does not."""
    stored, count = tensor.json.get("stored"), math.prod(shape)
    if isinstance(stored, int):  # the file of a sparse tensor holds only its stored values
        return "" if count == stored else f"holds {count} values of {brief(stored)}"
    return "" if shape == tensor.shape else f"has the shape {shape}, not {brief(tensor.shape)}"


def _differs(found: PtTensor, tensor: Tensor) -> str:
    """Return how the form of the tensor in a file differs from its record; empty when it does not."""
    wanted = tensor.dtype.removeprefix("torch.")
    if wanted in PT_DTYPES and found.dtype != wanted:
        return f"holds {found.dtype}, not {wanted}"
    if wanted in PT_DTYPES or isinstance(tensor.json.get("stored"), int):
        return _misshapen(found.shape, tensor)
    width = WIDTHS.get(wanted)  # saved as another dtype: the sizes in bytes must agree
    if width is None or found.count * found.width == math.prod(tensor.shape) * width:
        return ""
    return f"holds {found.count * found.width} bytes, not those of {wanted}{brief(list(tensor.shape))}"
