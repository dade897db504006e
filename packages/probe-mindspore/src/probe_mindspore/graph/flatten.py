"""Flatten a nest of tuples, lists and dicts to a tuple of tensors, inside MindSpore's compiler.

The functions here are read by the compiler, or called by it with constants. The layout of the nest is stored in Python
meanwhile (`value_layouts`).
"""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.ops import functional as F
from mindspore.ops import operations as P
from mindspore.ops.primitive import constexpr

from .value_layouts import ConstantLayout, LeafLayout, NestLayout, UnknownValue, number_of

#: Makes a function one that the compiler calls with constants, instead of reading it.
at_compile_time: Callable[[Callable[..., Any]], Callable[..., Any]] = constexpr(check=False)


@at_compile_time
def _leaf(index: Any, dtype: Any, shape: Any, is_dynamic: Any) -> int:
    return number_of(LeafLayout(index if index >= 0 else None, str(dtype), tuple(shape), is_dynamic))


@at_compile_time
def _constant(value: Any) -> int:
    return number_of(ConstantLayout(value))


@at_compile_time
def _nest(keys: Any, items: Any, type_: Any) -> int:
    return number_of(NestLayout(keys, tuple(items), type_))


@at_compile_time
def meta(site: Any, layout: Any, extra: Any, place: Any) -> Any:
    """Return the constant by which the host identifies a call: int64[4]."""
    return Tensor(np.array([site, layout, extra, place], np.int64))


_reshape = P.Reshape()
_cast = P.Cast()
_DIFFERENTIABLE = (ms.float16, ms.bfloat16, ms.float32, ms.float64, ms.complex64, ms.complex128)
_BFLOAT16 = ms.bfloat16
_FLOAT32 = ms.float32
_UNKNOWN = number_of(ConstantLayout(UnknownValue()))


def flatten(value: Any, found: Any) -> Any:
    """Return (number of the layout, ``found`` with the tensors of ``value`` added). For the compiler to read."""
    if isinstance(value, Tensor):
        shape = F.shape(value)
        dtype = F.dtype(value)
        if F.is_sequence_value_unknown(shape) or F.is_sequence_shape_unknown(shape):
            return _leaf(-1, dtype, (), True), found
        if len(shape) == 0:
            value = F.stop_gradient(value)
            if dtype == _BFLOAT16:
                value = _cast(value, _FLOAT32)  # exact; the CPU cannot reshape bfloat16
            return _leaf(len(found), dtype, shape, False), (*found, _reshape(value, (1,)))
        if 0 in shape:
            return _leaf(-1, dtype, shape, False), found
        return _leaf(len(found), dtype, shape, False), (*found, F.stop_gradient(value))
    if isinstance(value, dict):
        keys, values = parted(value)
        items, found = _flatten_each(values, found)
        return _nest(keys, items, "dict"), found
    if isinstance(value, tuple):
        items, found = _flatten_each(value, found)
        return _nest(None, items, "tuple"), found
    if isinstance(value, list):
        items, found = _flatten_each(value, found)
        return _nest(None, items, "list"), found
    if F.isconstant(value):
        return _constant(value), found
    return _UNKNOWN, found


def _flatten_each(values: Any, found: Any) -> Any:
    items: Any = ()
    for one in values:
        item, found = flatten(one, found)
        items = (*items, item)
    return items, found


def parted(mapping: Any) -> Any:
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
