"""Store the layouts of a graph's values when it is compiled: nesting, constants, dtypes and shapes.

`flatten` runs inside MindSpore's compiler, over any nest of tuples, lists and dicts. It returns the number of a layout,
which is stored here, in Python, and the tensors as a tuple. At run time only the tensors' memory is sent to the host,
where `rebuild` makes the nest again. So no dtype is lost: MindSpore passes a 0-d tensor to a host function as a Python
number (and fails for bfloat16 and complex ones), and fails on an empty tensor.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
import numpy.typing as npt
from attrs import frozen
from mindspore import Parameter, Tensor
from mindspore.ops import functional as F
from mindspore.ops import operations as P
from mindspore.ops.primitive import constexpr
from probe_format.tensors import narrow_name

from probe_mindspore.tensors.tensor_view import TensorView

__all__ = [
    "DYNAMIC",
    "UnknownValue",
    "flatten",
    "is_fixed",
    "is_watched",
    "leaf_path",
    "meta",
    "rebuild",
]

#: Why a tensor with a dynamic shape has no numbers.
DYNAMIC = (
    "its shape is only known when the graph runs, and MindSpore's host callbacks take fixed shapes; "
    "give the graph real inputs instead of set_inputs/dynamic ones to see it"
)


class UnknownValue:
    """Mark a value of a graph that is neither a tensor nor a constant: its contents cannot be shown."""


# The name of this type in dumps, which does not change when the code moves.
UnknownValue.__module__, UnknownValue.__qualname__ = "probe_mindspore.graph_values", "Variable"


@frozen
class _Leaf:
    """Describe a tensor.

    index: its number among the tensors sent; None if it is not sent.
    dtype, shape: as MindSpore has them.
    kind: "plain", "parameter" or "scalar" (sent as shape (1,)); "empty" or "dynamic" if it is not sent.
    """

    index: int | None
    dtype: str
    shape: tuple[int, ...]
    kind: str


@frozen
class _Nest:
    """Describe a tuple, list or dict.

    keys: the keys of a dict, else None.
    items: the numbers of the layouts inside.
    type: "tuple", "list" or "dict".
    """

    keys: tuple[Any, ...] | None
    items: tuple[int, ...]
    type: str


@frozen
class _Constant:
    value: Any


_known: list[Any] = []
_numbers: dict[Any, int] = {}
_lock = threading.Lock()
_UNKNOWN = _Constant(UnknownValue())


def _number(layout: Any) -> int:
    """Return the number of a layout. Equal layouts share one (constants with equal repr: 1, 1.0 and True differ)."""
    key = ("constant", type(layout.value), repr(layout.value)) if isinstance(layout, _Constant) else layout
    with _lock:
        number = _numbers.get(key)
        if number is None:
            number = _numbers[key] = len(_known)
            _known.append(layout)
        return number


_at_compile_time: Callable[[Callable[..., Any]], Callable[..., Any]] = constexpr(check=False)


@_at_compile_time
def _leaf(index: Any, dtype: Any, shape: Any, kind: Any) -> int:
    return _number(_Leaf(index if index >= 0 else None, str(dtype), tuple(shape), kind))


@_at_compile_time
def _constant(value: Any) -> int:
    return _number(_Constant(value))


@_at_compile_time
def _variable() -> int:
    return _number(_UNKNOWN)


@_at_compile_time
def _listed(items: Any, type_: Any) -> int:
    return _number(_Nest(None, tuple(items), type_))


@_at_compile_time
def _keyed(keys: Any, items: Any) -> int:
    return _number(_Nest(tuple(keys), tuple(items), "dict"))


@_at_compile_time
def meta(site: Any, layout: Any, extra: Any, place: Any) -> Any:
    """Return the constant by which the host identifies a call: int64[4]."""
    return Tensor(np.array([site, layout, extra, place], np.int64))


_reshape = P.Reshape()
_cast = P.Cast()
_DIFFERENTIABLE = (ms.float16, ms.bfloat16, ms.float32, ms.float64, ms.complex64, ms.complex128)
_BFLOAT16 = ms.bfloat16
_FLOAT32 = ms.float32


def flatten(value: Any, found: Any) -> Any:
    """Return (number of the layout, ``found`` with the tensors of ``value`` added). For the compiler to read."""
    if isinstance(value, Tensor):
        shape = F.shape(value)
        dtype = F.dtype(value)
        if F.is_sequence_value_unknown(shape) or F.is_sequence_shape_unknown(shape):
            return _leaf(-1, dtype, (), "dynamic"), found
        if len(shape) == 0:
            value = F.stop_gradient(value)
            if dtype == _BFLOAT16:
                value = _cast(value, _FLOAT32)  # exact; the CPU cannot reshape bfloat16
            return _leaf(len(found), dtype, shape, "scalar"), (*found, _reshape(value, (1,)))
        if 0 in shape:
            return _leaf(-1, dtype, shape, "empty"), found
        kind = "parameter" if isinstance(value, Parameter) else "plain"
        return _leaf(len(found), dtype, shape, kind), (*found, F.stop_gradient(value))
    if isinstance(value, dict):
        keys, values = _parted(value)
        items, found = _flatten_each(values, found)
        return _keyed(keys, items), found
    if isinstance(value, tuple):
        items, found = _flatten_each(value, found)
        return _listed(items, "tuple"), found
    if isinstance(value, list):
        items, found = _flatten_each(value, found)
        return _listed(items, "list"), found
    if F.isconstant(value):
        return _constant(value), found
    return _variable(), found


def _flatten_each(values: Any, found: Any) -> Any:
    items: Any = ()
    for one in values:
        item, found = flatten(one, found)
        items = (*items, item)
    return items, found


def _parted(mapping: Any) -> Any:
    """Return (keys, values), each as a tuple."""
    keys: Any = ()
    values: Any = ()
    for key in mapping.keys():  # noqa: SIM118 - the compiler goes over a dict's keys only like this
        keys = (*keys, key)
        values = (*values, mapping[key])
    return keys, values


def is_fixed(value: Any) -> Any:
    """Return whether this tensor can be sent: it has elements, and its shape is known. For the compiler to read."""
    shape = F.shape(value)
    if F.is_sequence_value_unknown(shape) or F.is_sequence_shape_unknown(shape):
        return False
    return 0 not in shape


def is_watched(value: Any) -> Any:
    """Return whether this tensor can have a gradient. For the compiler to read."""
    return F.dtype(value) in _DIFFERENTIABLE


# -- when the graph runs ------------------------------------------------------------------------------


def rebuild(layout: int, arrays: Sequence[npt.NDArray[Any]]) -> Any:
    """Return the nest, with each tensor as a `TensorView` that is valid during the callback only."""
    known = _known[layout]
    if isinstance(known, _Leaf):
        return _plain(known, arrays)
    if isinstance(known, _Constant):
        return known.value
    items = [rebuild(i, arrays) for i in known.items]
    if known.keys is not None:
        return dict(zip(known.keys, items, strict=True))
    return tuple(items) if known.type == "tuple" else items


def leaf_path(layout: int, index: int) -> tuple[Any, ...]:
    """Return the path of a tensor in the nest: keys and indexes from the outside in. Raises KeyError."""
    found = _search(layout, index)
    if found is None:
        raise KeyError(f"layout {layout} has no tensor {index}")
    return found


def _search(layout: int, index: int) -> tuple[Any, ...] | None:
    known = _known[layout]
    if isinstance(known, _Leaf):
        return () if known.index == index else None
    if isinstance(known, _Nest):
        for key, item in zip(known.keys or range(len(known.items)), known.items, strict=True):
            below = _search(item, index)
            if below is not None:
                return (key, *below)
    return None


_DTYPES = {"Bool": np.bool_, "BFloat16": np.uint16}


def _plain(leaf: _Leaf, arrays: Sequence[npt.NDArray[Any]]) -> TensorView:
    narrow = narrow_name(leaf.dtype)
    shape = list(leaf.shape)
    if leaf.kind == "dynamic":
        return TensorView("mindspore.Tensor", leaf.dtype, shape, None, None, reason=DYNAMIC)
    data: npt.NDArray[Any]
    if leaf.index is None:
        data = np.empty(shape, np.uint8 if narrow and narrow != "bfloat16" else _numpy_dtype(leaf.dtype))
    else:
        data = np.ascontiguousarray(arrays[leaf.index])
        if narrow == "bfloat16":
            if leaf.kind == "scalar":  # it came as float32
                data = (data.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
            else:
                data = data.view(np.uint16)
        elif narrow:
            data = data.view(np.uint8)
        data = data.reshape(shape)
    return TensorView(
        "mindspore.Tensor", leaf.dtype, shape, data, narrow, is_parameter=leaf.kind == "parameter"
    )


def _numpy_dtype(name: str) -> Any:
    return _DTYPES.get(name) or np.dtype(name.lower())
