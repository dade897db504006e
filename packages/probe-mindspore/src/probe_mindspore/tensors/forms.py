"""Describe what all tensors of one dtype and shape have in common: how they are named, laid out and read."""

import functools
import math
import re
from typing import Any

import mindspore
import numpy as np
from attrs import frozen
from mindspore._c_expression import TensorPy, typing
from probe_format import jsonio
from probe_format.tensors import narrow_name

_TENSOR = "mindspore.Tensor"
#: Up to this size in bytes a copy of the elements costs less than an array that MindSpore makes over them.
_SMALL = 1 << 17
#: The most forms that are kept: shapes can come without end.
_MOST = 10_000


@frozen
class Form:
    """Describe tensors of one dtype and shape.

    dtype, shape: as written in dump.json.
    narrow: for a dtype that numpy does not have, its name in `probe_format.tensors.narrow_floats`.
    kind: the numpy dtype of the elements, or of their bits for a narrow one; None where MindSpore decides.
    size: the number of elements.
    copied: whether the elements are read as a copy of their bytes, where they are contiguous.
    brief: the dtype as `numbers_at` knows it, where the statistics of such a tensor are four floats, as a rule; else
        empty.
    head: the beginning of the tensor object, up to its statistics.
    """

    dtype: str
    shape: list[int]
    narrow: str | None
    kind: np.dtype[Any] | None
    size: int
    copied: bool
    brief: str
    head: bytes


@functools.lru_cache(maxsize=256)
def is_usual(kind: type) -> bool:
    """Return whether the form, elements and own attributes of a tensor of this class hold all that is told of it.

    So it is for MindSpore's own class, and for a class that adds nothing to it: MindSpore makes one for parameters.
    """
    own = [set(vars(base)) - _NO_MEANING for base in kind.__mro__ if base not in _BASES]
    told = any(hasattr(kind, name) for name in _TOLD)
    return mindspore.Tensor in kind.__mro__ and not any(own) and not told


def usual_types() -> frozenset[type]:
    """Return the classes of MindSpore's own tensors. The class of parameters exists once there is a parameter."""
    made = tuple(getattr(mindspore.Parameter, "_base_type", {}).values())
    return frozenset(kind for kind in (mindspore.Tensor, *made) if is_usual(kind))


_BASES = (mindspore.Parameter, mindspore.Tensor, TensorPy, object)
_NO_MEANING = frozenset(
    {"__module__", "__doc__", "__abstractmethods__", "_abc_impl", "__dict__", "__weakref__"}
)
#: Attributes that a record tells besides form and elements.
_TOLD = ("layout", "hsdp_effective_shard_size")


def form_of(t: Any) -> Form:
    """Return the form of a dense tensor. Raises what MindSpore does where the computation of the tensor failed."""
    dtype, shape = t._dtype, t._shape  # what the properties without underscore return, by way of Python
    try:
        return FORMS[id(dtype), shape]
    except KeyError:
        form = _form(dtype, shape)
        if id(dtype) in _KEPT:
            if len(FORMS) >= _MOST:
                FORMS.clear()
            FORMS[id(dtype), shape] = form
        return form


#: (id of the dtype, shape) -> the form, of those that `form_of` was asked for.
FORMS: dict[tuple[int, tuple[int, ...]], Form] = {}
#: The ids of MindSpore's dtypes; its module keeps them alive, so no other object gets one of these.
_KEPT = {id(value) for value in vars(mindspore).values() if isinstance(value, typing.Type)}


def _form(dtype: Any, shape: tuple[int, ...]) -> Form:
    name = dtype_name(dtype)
    narrow = narrow_name(name)
    kind = np.dtype(BITS[narrow]) if narrow else _KINDS_OF.get(name)
    lengths = [int(length) for length in shape]
    size = math.prod(lengths)
    copied = kind is not None and 0 < size * kind.itemsize <= _SMALL
    is_brief = copied and (narrow == "bfloat16" or kind == np.float16)
    is_brief = is_brief or (size > 0 and name in ("Float32", "Float64"))
    brief = narrow or str(kind) if is_brief else ""
    head = jsonio.dumps({"type": _TENSOR, "dtype": name, "shape": lengths})[:-1] + b","
    return Form(name, lengths, narrow, kind, size, copied, brief, head)


#: Narrow dtype -> the numpy dtype of its bits.
BITS = {"bfloat16": "uint16", "float8e4m3fn": "uint8", "float8e5m2": "uint8", "hifloat8": "uint8"}
_NAMES = "Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float16 Float32 Float64 Bool"
_KINDS_OF = {name: np.dtype(name.lower()) for name in _NAMES.split()}


def dtype_name(dtype: Any) -> str:
    """Return MindSpore's name of a dtype: ``Float32``. With mindtorch, str() returns ``mindspore.float32`` instead."""
    text = str(dtype)
    if not text.startswith("mindspore."):
        return text
    kind, size, form = _DTYPE_TEXT.fullmatch(text).groups()  # type: ignore[union-attr]
    return _KINDS.get(kind, kind.capitalize()) + size + form.replace("_", "").upper()


_DTYPE_TEXT = re.compile(r"mindspore\.([a-z]*)(\d*)(.*)")
_KINDS = {"bfloat": "BFloat", "hifloat": "HiFloat", "uint": "UInt"}
