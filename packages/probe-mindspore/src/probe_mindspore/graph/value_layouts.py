"""Store the layouts of a graph's values (nesting, constants, dtypes and shapes), and make the values again from them.

A layout is stored in Python when the graph is compiled (`flatten`), and its number is a constant of the graph. At run
time only the tensors' memory is sent to the host, where `rebuild` makes the nest again. So no dtype is lost: MindSpore
passes a 0-d tensor to a host function as a Python number (and fails for bfloat16 and complex ones), and fails on an
empty tensor.
"""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen
from probe_format.tensors import narrow_name

from probe_mindspore.tensors.forms import BITS
from probe_mindspore.tensors.tensor_view import TensorView

#: Why a tensor with a dynamic shape has no numbers.
DYNAMIC = (
    "its shape is only known when the graph runs, and MindSpore's host callbacks take fixed shapes; "
    "give the graph real inputs instead of set_inputs/dynamic ones to see it"
)


#: Why a tensor of a graph has no numbers though its shape is known.
LOST = "it was not found among what the run computes, nor was all that it could be computed from"


class UnknownValue:
    """Mark a value of a graph that is neither a tensor nor a constant: its contents cannot be shown."""


# The name of this type in dumps, which does not change when the code moves.
UnknownValue.__module__, UnknownValue.__qualname__ = "probe_mindspore.graph_values", "Variable"


@frozen
class LeafLayout:
    """Describe a tensor.

    index: its number among the tensors sent, of a scalar with shape (1,); None if it is not sent.
    dtype, shape: as MindSpore has them.
    is_dynamic: whether only the run knows its shape.
    """

    index: int | None
    dtype: str
    shape: tuple[int, ...]
    is_dynamic: bool


@frozen
class NestLayout:
    """Describe a tuple, list or dict.

    keys: the keys of a dict, else None.
    items: the numbers of the layouts inside.
    type: "tuple", "list" or "dict".
    """

    keys: tuple[Any, ...] | None
    items: tuple[int, ...]
    type: str


@frozen
class ConstantLayout:
    """Describe a value that is the same in each run of the graph."""

    value: Any


_known: list[Any] = []
_numbers: dict[Any, int] = {}
_lock = threading.Lock()


def number_of(layout: Any) -> int:
    """Return the number of a layout. Equal layouts share one (constants with equal repr: 1, 1.0 and True differ)."""
    constant = isinstance(layout, ConstantLayout)
    key = ("constant", type(layout.value), repr(layout.value)) if constant else layout
    with _lock:
        number = _numbers.get(key)
        if number is None:
            number = _numbers[key] = len(_known)
            _known.append(layout)
        return number


def rebuild(layout: int, arrays: Sequence[npt.NDArray[Any]]) -> Any:
    """Return the value with this layout, each tensor as a `TensorView` that is valid during the callback only.

    arrays: the elements of the tensors that were sent; None for one that is not known.
    """
    known = _known[layout]
    if isinstance(known, LeafLayout):
        return _plain(known, arrays)
    if isinstance(known, ConstantLayout):
        return known.value
    items = [rebuild(i, arrays) for i in known.items]
    if known.keys is not None:
        return dict(zip(known.keys, items, strict=True))
    return tuple(items) if known.type == "tuple" else items


def _plain(leaf: LeafLayout, arrays: Sequence[npt.NDArray[Any]]) -> TensorView:
    narrow, shape = narrow_name(leaf.dtype), list(leaf.shape)
    kind = np.dtype(BITS[narrow] if narrow else leaf.dtype.lower())
    if leaf.is_dynamic:
        return TensorView("mindspore.Tensor", leaf.dtype, shape, None, reason=DYNAMIC)
    data: npt.NDArray[Any]
    if leaf.index is None:
        data = np.empty(shape, kind)
    elif arrays[leaf.index] is None:
        return TensorView("mindspore.Tensor", leaf.dtype, shape, None, reason=LOST)
    else:
        data = np.ascontiguousarray(arrays[leaf.index])
        if narrow == "bfloat16" and data.dtype == np.float32:  # as a scalar does, and what TensorDump writes
            data = (data.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        data = (data.view(kind) if narrow else data).reshape(shape)
    return TensorView("mindspore.Tensor", leaf.dtype, shape, data, narrow)
