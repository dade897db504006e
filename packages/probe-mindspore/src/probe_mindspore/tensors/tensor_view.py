"""View any MindSpore tensor as plain data: the names of its type, dtype and shape, and an array of its elements.

The memory is read directly, and MindSpore computes nothing. A tensor without readable elements (not yet initialised,
text, one whose computation failed) has a reason instead.
"""

from __future__ import annotations

import re
from typing import Any

import mindspore as ms
import numpy as np
import numpy.typing as npt
from attrs import field, frozen
from mindspore._c_expression import TensorPy
from probe_format.tensors import narrow_name

__all__ = ["SPARSE", "TensorView", "dtype_name", "is_tensor", "view_of"]

# The C methods themselves: the attributes of mindspore.Tensor may be patched while we run.
_asnumpy: Any = TensorPy.asnumpy
_get_bytes: Any = TensorPy.get_bytes
_TENSOR = "mindspore.Tensor"

#: The classes of sparse tensors, which are not subclasses of `mindspore.Tensor`.
SPARSE: tuple[type, ...] = tuple(
    getattr(ms, name) for name in ("COOTensor", "CSRTensor", "RowTensor") if hasattr(ms, name)
)


@frozen
class TensorView:
    """Describe a tensor.

    type, dtype, shape: as written in dump.json.
    data: C-contiguous array of the elements, or None. It is the tensor's own memory where possible (CPU), else a copy,
        and is valid only until the user's code runs again.
    narrow: for a dtype that numpy does not have, its name in `probe_format.tensors.narrow_floats`; ``data`` then holds
        its bits.
    extra: more keys for the tensor object.
    reason: why there is no data.
    is_parameter: whether it is a Parameter; for tensors from graphs.
    """

    type: str
    dtype: str
    shape: list[int]
    data: npt.NDArray[Any] | None
    narrow: str | None = None
    extra: dict[str, Any] = field(factory=dict)
    reason: str = ""
    is_parameter: bool = False


def is_tensor(value: object) -> bool:
    """Return whether it is a dense MindSpore tensor (a Parameter or one made by C++ code too), or a TensorView."""
    return isinstance(value, (TensorPy, TensorView))


def dtype_name(dtype: Any) -> str:
    """Return MindSpore's name of a dtype: ``Float32``. With mindtorch, str() returns ``mindspore.float32`` instead."""
    text = str(dtype)
    if not text.startswith("mindspore."):
        return text
    kind, size, form = _DTYPE_TEXT.fullmatch(text).groups()  # type: ignore[union-attr]
    return _KINDS.get(kind, kind.capitalize()) + size + form.replace("_", "").upper()


_DTYPE_TEXT = re.compile(r"mindspore\.([a-z]*)(\d*)(.*)")
_KINDS = {"bfloat": "BFloat", "hifloat": "HiFloat", "uint": "UInt"}


def view_of(t: Any) -> TensorView:
    """Return the view of ``t``, dense or sparse; one that cannot be read has a reason, and raises no error."""
    if isinstance(t, TensorView):  # from a compiled graph, which gives memory and not tensors
        return t
    if isinstance(t, SPARSE):
        return _sparse(t)
    dtype = "unknown"  # if the computation of a tensor failed, reading its dtype raises too
    extra = _layout(t)
    try:
        dtype = dtype_name(t.dtype)
        narrow = narrow_name(dtype)
        shape = [int(s) for s in t.shape]
        if getattr(t, "has_init", False):
            # Reading the data would draw its random numbers now, and not when the run does.
            return TensorView(_TENSOR, dtype, shape, None, None, extra, "it is not initialised yet")
        data = _bits(t, shape, narrow) if narrow else np.asarray(_asnumpy(t))
    except Exception as e:
        first = str(e).strip().split("\n")[0]
        why = f"cannot be read ({type(e).__name__}: {first})"
        return TensorView(_TENSOR, dtype, _shape(t), None, None, extra, why)
    if data.dtype.kind not in "biufcV" or (data.dtype.kind == "V" and not narrow):
        return TensorView(_TENSOR, dtype, shape, None, None, extra, f"no statistics for dtype {dtype}")
    if not data.flags.c_contiguous:
        data = np.ascontiguousarray(data)
    return TensorView(_TENSOR, dtype, shape, data, narrow, extra)


def _bits(t: Any, shape: list[int], narrow: str) -> npt.NDArray[Any]:
    kind = np.uint16 if narrow == "bfloat16" else np.uint8
    if not all(shape):
        return np.empty(shape, kind)
    try:
        raw = _asnumpy(t)
        if raw.dtype.itemsize == np.dtype(kind).itemsize:
            return np.ascontiguousarray(raw).view(kind).reshape(shape)
    except (TypeError, ValueError, SystemError):  # MindSpore's own bfloat16 for numpy is not in every numpy
        pass
    return np.frombuffer(_get_bytes(t), kind).reshape(shape)


def _shape(t: Any) -> list[int]:
    try:
        return [int(s) for s in t.shape]
    except Exception:
        return []


def _sparse(t: Any) -> TensorView:
    """Return the view of a sparse tensor's stored values, with their number; implied zeros are not counted."""
    name = type(t).__name__
    found = view_of(t.values)
    whole = t.dense_shape if hasattr(t, "dense_shape") else t.shape
    extra = {"layout": name.removesuffix("Tensor"), "stored": 0 if found.data is None else found.data.size}
    shape = [int(s) for s in whole]
    return TensorView(f"mindspore.{name}", found.dtype, shape, found.data, found.narrow, extra, found.reason)


_LAYOUT = (
    ("Device Matrix", "device_matrix"),
    ("Alias Name", "alias_name"),
    ("Partial", "partial"),
    ("Tensor Map", "tensor_map"),
    ("Rank List", "rank_list"),
)


def _layout(t: Any) -> dict[str, Any]:
    """Return how a distributed tensor is split over the devices, under msprobe's keys."""
    extra: dict[str, Any] = {}
    layout = getattr(t, "layout", None)
    if layout is not None:
        parts = {key: getattr(layout, name, None) for key, name in _LAYOUT}
        found = {key: _listed(value) for key, value in parts.items() if value is not None}
        if parts["Alias Name"] is not None:
            found["Interleaved"] = "Yes" if "interleaved_parallel" in parts["Alias Name"] else "No"
        extra["layout"] = found
    size = getattr(t, "hsdp_effective_shard_size", None)
    if size is not None:
        extra["hsdp_shard_size"] = size
    return extra


def _listed(value: Any) -> Any:
    """Return tuples as lists, and anything that JSON does not have as text."""
    if isinstance(value, list | tuple):
        return [_listed(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
