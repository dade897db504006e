"""View any MindSpore tensor as plain data: the names of its type, dtype and shape, and an array of its elements.

The memory is read directly, and MindSpore computes nothing. A tensor without readable elements (not yet initialised,
text, one whose computation failed) has a reason instead.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import mindspore as ms
import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen
from mindspore._c_expression import TensorPy
from probe_format.excerpts import unsignalled
from probe_format.values import ValuePath

from .forms import Form, form_of

# The C methods themselves: the attributes of mindspore.Tensor may be patched while we run.
_asnumpy: Any = TensorPy.asnumpy
_get_bytes: Any = TensorPy.get_bytes
_is_contiguous: Any = TensorPy.is_contiguous
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
    error: an error of the run that came when the elements were read.
    """

    type: str
    dtype: str
    shape: list[int]
    data: npt.NDArray[Any] | None
    narrow: str | None = None
    extra: dict[str, Any] = field(factory=dict)
    reason: str = ""
    error: Exception | None = None


#: The classes of dense tensors; a Parameter is one, and so is what only C++ code made.
DENSE = (TensorPy, TensorView)


def views_in(value: Any) -> Iterator[tuple[ValuePath, TensorView]]:
    """Yield the views in a nest of lists, tuples and dicts, each with its path."""
    if isinstance(value, TensorView):
        yield (), value
    elif isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            for path, view in views_in(item):
                yield (key, *path), view


def tensors_in(value: Any) -> Iterator[ms.Tensor]:
    """Yield the tensors in a nest of lists, tuples and mappings."""
    if isinstance(value, ms.Tensor):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(item)


def views_of(value: Any) -> list[TensorView]:
    """Return the views of the tensors in a nest."""
    return [*map(view_of, tensors_in(value))]


def view_of(t: Any) -> TensorView:
    """Return the view of ``t``, dense or sparse; one that cannot be read has a reason, and raises no error."""
    if isinstance(t, TensorView):  # from a compiled graph, which gives memory and not tensors
        return t
    if isinstance(t, SPARSE):
        return _sparse(t)
    form = None
    try:
        form = form_of(t)
        # To read one that is not initialised would draw its random numbers now, and not when the run does.
        waits = getattr(t, "has_init", False)
        data = None if waits else read(t, form).reshape(form.shape)
        reason = "it is not initialised yet" if waits else ""
    except unsignalled(Exception) as e:
        return unreadable(t, form, e)
    if data is not None and (data.dtype.kind not in "biufcV" or (data.dtype.kind == "V" and not form.narrow)):
        data, reason = None, f"no statistics for dtype {form.dtype}"
    return TensorView(_TENSOR, form.dtype, form.shape, data, form.narrow, layout_of(t), reason)


def unreadable(t: Any, form: Form | None, error: Exception) -> TensorView:
    """Return the view of a tensor whose form or elements could not be read.

    form: None where reading the form failed: if the computation of a tensor failed, reading its dtype raises too.
    """
    first = str(error).strip().split("\n")[0]
    reason = f"cannot be read ({type(error).__name__}: {first})"
    dtype = "unknown" if form is None else form.dtype
    of_run = _NATIVE in str(error) and not (_ON_HOOKED and first.startswith(_ON_HOOKED))
    if of_run and form is not None:
        of_run = _is_readable(t, form)
    run_error = error if of_run else None
    return TensorView(_TENSOR, dtype, _shape(t), None, None, layout_of(t), reason, error=run_error)


#: A text in each error of MindSpore's kernels. Errors of Python and numpy do not have it: those are Probe's own.
_NATIVE = "C++ Call Stack"
#: What MindSpore 2.7 says of a write to a plain tensor that has a hook, such as Probe's; the write is made.
_ON_HOOKED = (
    "" if hasattr(TensorPy, "_grad_node") else "A leaf tensor that requires grad is being used in an inplace"
)


def _is_readable(t: Any, form: Form) -> bool:
    """Return whether the elements can be read now: then the error was another kernel's, or is raised only once."""
    try:
        read(t, form)
    except unsignalled(Exception):
        return False
    return True


def read(t: Any, form: Form) -> npt.NDArray[Any]:
    """Return the elements, or the bits of a narrow dtype, as a C-contiguous array of any shape.

    It is the tensor's own memory where possible, and a read-only copy of a small one.
    """
    if form.copied and _is_contiguous(t):  # 2.7 makes any other contiguous when its bytes are read
        return np.frombuffer(_get_bytes(t), form.kind)
    if form.narrow and form.kind:
        return _bits(t, form.shape, form.kind)
    data = np.asarray(_asnumpy(t))
    return data if data.flags.c_contiguous else np.ascontiguousarray(data)


def _bits(t: Any, shape: list[int], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    if not all(shape):
        return np.empty(shape, kind)
    try:
        raw = _asnumpy(t)
        if raw.dtype.itemsize == kind.itemsize:
            return np.ascontiguousarray(raw).view(kind).reshape(shape)
    except (TypeError, ValueError, SystemError):  # MindSpore's own bfloat16 for numpy is not in every numpy
        pass
    return np.frombuffer(_get_bytes(t), kind).reshape(shape)


def _shape(t: Any) -> list[int]:
    try:
        return [int(s) for s in t.shape]
    except unsignalled(Exception):
        return []


def _sparse(t: Any) -> TensorView:
    """Return the view of a sparse tensor's stored values, with their number; implied zeros are not counted."""
    name = type(t).__name__
    found = view_of(t.values)
    whole = t.dense_shape if hasattr(t, "dense_shape") else t.shape
    extra = {"layout": name.removesuffix("Tensor"), "stored": 0 if found.data is None else found.data.size}
    shape = [int(s) for s in whole]
    return evolve(found, type=f"mindspore.{name}", shape=shape, extra=extra)


_LAYOUT = ("Device Matrix", "Alias Name", "Partial", "Tensor Map", "Rank List")


def layout_of(t: Any) -> dict[str, Any]:
    """Return how a distributed tensor is split over the devices, under msprobe's keys."""
    extra: dict[str, Any] = {}
    layout = getattr(t, "layout", None)
    if layout is not None:
        parts = {key: getattr(layout, key.lower().replace(" ", "_"), None) for key in _LAYOUT}
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
