"""Hold what all plain tensors of one dtype and shape have in common, worked out once; tell how tensors lie in memory.

A plain tensor is one of floats on the CPU, not empty, neither lazy nor wrapped nor of a subclass.
"""

import functools
from typing import Any

import torch
from attrs import frozen
from probe_format.jsonio import dumps
from probe_format.tensors import checksum_of, memory_at, pt_bytes

from probe_torch.aside import outside

_T: Any = torch._C.TensorBase
_KINDS = {getattr(torch, name): name for name in ("float32", "float64", "bfloat16", "float16")}
_MOST = 4096
#: From here on, a data pointer is surely an address. A lower one may be only the offset of a tensor that is freed.
LOWEST = 1 << 40


@frozen
class Form:
    """Hold what the plain tensors of one dtype and shape have in common.

    opening: their JSON up to the numbers.
    dtype: as dump.json has it.
    kind: the dtype's name without ``torch.``.
    count: how many elements there are, one or more.
    shape: as a tuple of integers.
    nbytes: the size of one, in bytes.
    """

    opening: bytes
    dtype: str
    kind: str
    count: int
    shape: tuple[int, ...]
    nbytes: int

    def file_parts(self, pointer: int) -> list[bytes | memoryview]:
        """Return the parts of the ``.pt`` file of the tensor at this address."""
        return pt_bytes(self.kind, self.shape, memoryview(memory_at(pointer, self.nbytes)))

    def checksum(self, pointer: int, kind: str) -> str:
        """Return the checksum of the tensor at this address. kind: ``md5`` or ``xor``."""
        return checksum_of(memoryview(memory_at(pointer, self.nbytes)), kind)


class _Forms(dict[tuple[torch.dtype, torch.Size], Form | None]):
    """Find the form for a dtype and a shape; None if tensors of them are not plain."""

    def __missing__(self, key: tuple[torch.dtype, torch.Size]) -> Form | None:
        dtype, shape = key
        sizes = list(shape)
        if any(type(n) is not int for n in sizes):  # while torch.jit traces, they are tensors
            return None
        form, count = None, shape.numel()
        if dtype in _KINDS and count:
            head = dumps({"type": "torch.Tensor", "dtype": str(dtype), "shape": sizes})
            form = Form(
                head[:-1] + b",", str(dtype), _KINDS[dtype], count, tuple(sizes), count * dtype.itemsize
            )
        if len(self) > _MOST:
            self.clear()
        self[key] = form
        return form


#: (dtype, shape) -> the form. A dict, because the search in it costs no call.
FORMS = _Forms()


def has_memory(t: torch.Tensor) -> bool:
    """Return whether a strided tensor can be read: not one that is freed (``storage.resize_(0)``) or not filled yet."""
    address = _T.data_ptr(t)
    return address >= LOWEST or address != _T.storage_offset(t) * _T.element_size(t) or not _T.numel(t)


def without_holes(t: torch.Tensor) -> torch.Tensor:
    """Return plain ``t`` if its elements, in any order, fill the memory from its address on, else a copy that does."""
    return t if is_dense(t.shape, _T.stride(t)) else in_order(t)


def in_order(t: torch.Tensor) -> torch.Tensor:
    """Return plain ``t`` with its elements in C order from its address on, as a copy if they are not."""
    with outside():
        return _T.contiguous(_T.detach(t))  # type: ignore[no-any-return]


@functools.lru_cache(_MOST)
def is_dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Return whether elements so laid out fill their piece of storage without holes or overlaps, in any order."""
    expected = 1
    for step, size in sorted((st, sz) for st, sz in zip(stride, shape, strict=True) if sz != 1):
        if step != expected:
            return False
        expected *= size
    return True
