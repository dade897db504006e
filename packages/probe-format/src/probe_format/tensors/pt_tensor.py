"""Find the tensors that a ``.pt`` file's pickle describes: dtype, shape, stride and the place of their elements.

Nothing is imported and nothing called: a stand-in takes the place of each name.
"""

import io
import math
import pickle
import pickletools
from typing import Any

from attrs import frozen

from probe_format.errors import DamagedError, FormatError

from .pt_file import QUANTISED, STORAGES, WIDTHS

_MOST_BYTES = 1 << 16
_OPCODES = {
    "PROTO", "GLOBAL", "REDUCE", "BINPERSID", "MARK", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "BINPUT",
    "LONG_BINPUT", "BINGET", "LONG_BINGET", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT",
    "BINUNICODE", "STOP",
}  # fmt: skip
_MOST_DIMENSIONS = 64
_INT64 = 1 << 63

_STORAGES = {f"torch.{storage}": (name, width) for name, (storage, width) in (STORAGES | QUANTISED).items()}
_UNTYPED = "torch.storage.UntypedStorage"
_DTYPES = {f"torch.{name}": width for name, width in WIDTHS.items() if name not in QUANTISED}
_TENSOR, _TYPED_TENSOR = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"
_PARAMETER = "torch._utils._rebuild_parameter"
_QUANTISED, _SPARSE = "torch._utils._rebuild_qtensor", "torch._utils._rebuild_sparse_tensor"
_HOOKS, _LAYOUT, _SIZE = "collections.OrderedDict", "torch.serialization._get_layout", "torch.Size"
_NAMES = {
    _TENSOR, _TYPED_TENSOR, _PARAMETER, _QUANTISED, _SPARSE, _HOOKS, _LAYOUT, _SIZE, _UNTYPED, *_STORAGES, *_DTYPES,
    "torch.per_tensor_affine", "torch.per_channel_affine", "torch.per_channel_affine_float_qparams",
}  # fmt: skip


@frozen
class _Reduction:
    """Stand for what a call returns. function: its name."""

    function: str
    arguments: tuple[Any, ...]


@frozen
class _Name:
    """Stand for what the pickle imports."""

    name: str

    def __call__(self, *arguments: Any) -> _Reduction:
        return _Reduction(self.name, arguments)


@frozen
class _Stored:
    """Stand for a storage. what: what torch.save says of it: kind, member, device and number of elements."""

    what: Any


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> _Name:
        if (full := f"{module}.{name}") not in _NAMES:
            raise FormatError(f"its pickle names {full[:80]!a}, which no tensor needs")
        return _Name(full)

    def persistent_load(self, what: Any) -> _Stored:
        return _Stored(what)


def _unpickled(content: bytes) -> Any:
    """Return what the pickle makes, with a `_Name`, `_Reduction` or `_Stored` for what unpickling would import or call.

    `pickle.Unpickler` alone would not be safe: one opcode can make it reserve gigabytes (a memo's number, a bytearray's
    size), and others build or call what a tensor never needs. So the opcodes are screened first, in a pickle of 64 KiB
    at most, and those that pass take no more memory than the pickle has bytes, but for a small factor.
    """
    if len(content) > _MOST_BYTES:
        raise FormatError(f"its pickle has {len(content)} bytes, more than that of a tensor")
    try:
        end = _screened(content)
        if end != len(content):
            raise ValueError("it does not end where it stops")
        return _PlainUnpickler(io.BytesIO(content)).load()
    except FormatError:
        raise
    except Exception as error:
        raise DamagedError(f"its pickle is damaged ({str(error)[:100]})") from None


def _screened(content: bytes) -> int:
    """Return where the pickle ends. Raises FormatError for an opcode that no tensor needs, ValueError for damage."""
    end = 0
    for op, arg, at in pickletools.genops(content):
        if op.name not in _OPCODES:
            raise FormatError(f"its pickle has the opcode {op.name}, which no tensor needs")
        if op.name == "PROTO" and arg != 2:
            raise ValueError(f"it is of protocol {arg}")
        if op.name == "LONG_BINPUT" and int(arg or 0) >= len(content):
            raise ValueError("it remembers more than it has")
        end = (at or 0) + 1
    return end


@frozen
class PtTensor:
    """Describe one tensor in the file.

    stride, offset: in elements.
    storage: the name of the zip's member with its bytes.
    width: bytes of one element.
    plain: whether it is all that the file holds, and neither quantised nor a part of a sparse tensor.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: str
    width: int
    plain: bool = True

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        """Return whether the elements lie one after the other, in C order."""
        step = 1
        for n, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if n != 1 and stride != step:
                return not self.count
            step *= n
        return True


def tensors_of(content: bytes, sizes: dict[str, int]) -> tuple[PtTensor, ...]:
    """Return the tensors that the pickle describes, each of which lies within its storage.

    content: the pickle.
    sizes: bytes of each storage, by member name.
    Raises DamagedError when torch.save writes no such pickle or it does not fit the storages, FormatError when it may
    be a pickle of something other than a tensor; the messages have no file name.
    """
    found = _value(_unpickled(content), sizes)
    unused = set(sizes) - {tensor.storage for tensor in found}
    if unused:
        raise DamagedError(f"no tensor uses its member {min(unused)}")
    return found


def _value(value: Any, sizes: dict[str, int]) -> tuple[PtTensor, ...]:
    function, arguments = _call(value)
    if function == _PARAMETER and len(arguments) == 3 and _hooks(arguments[2]):
        function, arguments = _call(arguments[0])  # the tensor in it, which is no parameter
    if function == _TENSOR and len(arguments) == 6:
        return (_tensor(arguments, None, sizes),)
    if function == _TYPED_TENSOR and len(arguments) == 7 and isinstance(arguments[6], _Name):
        return (_tensor(arguments[:6], arguments[6].name, sizes),)
    if function == _QUANTISED and len(arguments) == 7 and isinstance(arguments[4], tuple):
        inside = [item for item in arguments[4] if isinstance(item, _Reduction)]
        own = _tensor((*arguments[:4], *arguments[5:]), None, sizes, plain=False)
        return (own, *(_part(item, sizes) for item in inside))
    if function == _SPARSE and len(arguments) == 2 and isinstance(arguments[1], tuple):
        return tuple(
            _part(item, sizes) for item in arguments[1] if _call(item)[0] in (_TENSOR, _TYPED_TENSOR)
        )
    raise FormatError("its pickle is not that of a tensor")


def _part(value: Any, sizes: dict[str, int]) -> PtTensor:
    function, arguments = _call(value)
    if function == _TENSOR and len(arguments) == 6:
        return _tensor(arguments, None, sizes, plain=False)
    raise FormatError("its pickle is not that of a tensor")


def _call(value: Any) -> tuple[str, tuple[Any, ...]]:
    return (value.function, value.arguments) if isinstance(value, _Reduction) else ("", ())


def _hooks(value: Any) -> bool:
    return _call(value) == (_HOOKS, ())


def _tensor(arguments: Any, dtype: str | None, sizes: dict[str, int], *, plain: bool = True) -> PtTensor:
    stored, offset, shape, stride, grad, hooks = arguments
    name, width, member, count = _storage(stored, dtype)
    whole = isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride)
    if not whole or len(shape) > _MOST_DIMENSIONS or not _hooks(hooks) or type(grad) is not bool:
        raise FormatError("its pickle is not that of a tensor")
    if any(type(n) is not int or not 0 <= n < _INT64 for n in (*shape, *stride, offset)):
        raise DamagedError("its pickle has a shape, a stride or an offset that no tensor has")
    if grad and not name.startswith(("float", "bfloat", "complex")):
        raise DamagedError(f"its pickle wants gradients of {name}")
    if member not in sizes:
        raise DamagedError(f"it lacks its member {member}")
    if sizes[member] != count * width:
        raise DamagedError(
            f"its member {member} has {sizes[member]} bytes, and its pickle says {count * width}"
        )
    elements = math.prod(max(n, 1) for n in shape)
    last = offset + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    if elements >= _INT64 or (0 not in shape and (last >= count or elements > count)):
        raise DamagedError("its pickle has a shape that is larger than what is stored")
    return PtTensor(name, shape, stride, offset, member, width, plain)


def _storage(stored: Any, dtype: str | None) -> tuple[str, int, str, int]:
    """Return dtype, bytes of one element, name of the member, and number of elements."""
    match stored:
        case _Stored(("storage", _Name(kind), key, place, count)):
            pass
        case _:
            raise FormatError("its pickle has no storage where a tensor has one")
    if not (isinstance(key, str) and key.isascii() and key.isdigit() and isinstance(place, str)):
        raise DamagedError("its pickle has a storage without a name")
    if type(count) is not int or not 0 <= count < _INT64:
        raise DamagedError("its pickle has a storage without a size")
    if kind == _UNTYPED and dtype in _DTYPES:
        width = _DTYPES[dtype]
        if count % width:
            raise DamagedError("its pickle has a storage that ends within an element")
        return dtype.removeprefix("torch."), width, f"data/{key}", count // width
    if kind in _STORAGES and dtype is None:
        name, width = _STORAGES[kind]
        return name, width, f"data/{key}", count
    raise FormatError("its pickle has a storage of another kind than its tensor")
