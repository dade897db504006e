"""Know plain tensors at a glance: contiguous floats on the CPU, neither lazy, wrapped, empty nor of a subclass.

What all those of one dtype and shape have in common is worked out once.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import frozen
from probe_format.jsonio import dumps
from probe_format.tensors import memory_at, pt_bytes

from .tensor_view import EXACT, ORDINARY

__all__ = ["Form", "form_of"]

_keys: Any = torch._C._dispatch_keys
_is_contiguous: Any = torch._C.TensorBase.is_contiguous
_KINDS = {torch.float32: "float32", torch.float64: "float64"}
_MOST = 4096


@frozen
class Form:
    """Hold what the plain tensors of one dtype and shape have in common.

    opening: their JSON up to the numbers.
    kind: the dtype, as numpy has it.
    count: how many elements there are, one or more.
    shape: as a tuple of integers.
    nbytes: their size.
    """

    opening: bytes
    kind: str
    count: int
    shape: tuple[int, ...]
    nbytes: int

    def file_parts(self, pointer: int) -> list[bytes | memoryview]:
        """Return the parts of the ``.pt`` file of the tensor at this address."""
        return pt_bytes(self.kind, self.shape, memoryview(memory_at(pointer, self.nbytes)))


_FORMS: dict[tuple[torch.dtype, torch.Size], Form | None] = {}


def form_of(t: Any) -> Form | None:
    """Return the form of ``t``; None if it is not plain, and `view_of` says what it is."""
    if type(t) not in EXACT or _keys(t).raw_repr() not in ORDINARY or not _is_contiguous(t):
        return None
    try:
        return _FORMS[t.dtype, t.shape]
    except KeyError:
        return _new_form(t.dtype, t.shape)


def _new_form(dtype: torch.dtype, shape: torch.Size) -> Form | None:
    sizes = list(shape)
    if any(type(n) is not int for n in sizes):  # while torch.jit traces, they are tensors
        return None
    form = None
    if dtype in _KINDS and shape.numel():
        head = dumps({"type": "torch.Tensor", "dtype": str(dtype), "shape": sizes})
        count = shape.numel()
        form = Form(head[:-1] + b",", _KINDS[dtype], count, tuple(sizes), count * dtype.itemsize)
    if len(_FORMS) > _MOST:
        _FORMS.clear()
    _FORMS[dtype, shape] = form
    return form
