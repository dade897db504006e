"""Parse the header of an Ascend ``bin`` file, toolkit.dumpdata.DumpData (spec/kernel-files.md).

The header is protobuf. It is read without the protobuf package, of which MindSpore pins a version: only what this
header needs is parsed, and each length is checked against the bytes that are there.
Source: https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen
from probe_format.errors import DamagedError

_Value = int | memoryview
_MOST_FIELDS = 1 << 20  # far beyond any header: millions of tiny ones would take minutes
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}  # the wire types of numbers of a fixed size, and their bytes
_MOST_DIMENSIONS = 64
_MOST_TENSORS = 1 << 16

_DTYPES = {
    1: "float32", 2: "float16", 3: "int8", 4: "uint8", 5: "int16", 6: "uint16", 7: "int32", 8: "int64",
    9: "uint32", 10: "uint64", 11: "bool", 12: "float64", 13: "string", 14: "dual_sub_int8",
    15: "dual_sub_uint8", 16: "complex64", 17: "complex128", 18: "qint8", 19: "qint16", 20: "qint32",
    21: "quint8", 22: "quint16", 23: "resource", 24: "string_ref", 25: "dual", 26: "variant", 27: "bfloat16",
    28: "int4", 29: "uint1", 30: "int2", 31: "uint2", 32: "complex32", 33: "hifloat8", 34: "float8_e5m2",
    35: "float8_e4m3fn", 36: "float8_e8m0",
}  # fmt: skip
#: The names of the layouts by their numbers in the header.
FORMATS = {
    0: "NCHW", 1: "NHWC", 2: "ND", 3: "NC1HWC0", 4: "FRACTAL_Z", 5: "NC1C0HWPAD", 6: "NHWC1C0", 7: "FSR_NCHW",
    8: "FRACTAL_DECONV", 9: "C1HWNC0", 10: "FRACTAL_DECONV_TRANSPOSE",
    11: "FRACTAL_DECONV_SP_STRIDE_TRANS", 12: "NC1HWC0_C04", 13: "FRACTAL_Z_C04", 14: "CHWN",
    15: "DECONV_SP_STRIDE8_TRANS", 16: "HWCN", 17: "NC1KHKWHWC0", 18: "BN_WEIGHT", 19: "FILTER_HWCK",
    20: "LOOKUP_LOOKUPS", 21: "LOOKUP_KEYS", 22: "LOOKUP_VALUE", 23: "LOOKUP_OUTPUT", 24: "LOOKUP_HITS",
    25: "C1HWNCoC0", 26: "MD", 27: "NDHWC", 28: "UNKNOWN", 29: "FRACTAL_NZ", 30: "NCDHW", 31: "DHWCN",
    32: "NDC1HWC0", 33: "FRACTAL_Z_3D", 34: "CN", 35: "NC", 36: "DHWNC", 37: "FRACTAL_Z_3D_TRANSPOSE",
    40: "RESERVED", 255: "MAX",
}  # fmt: skip


@frozen
class Tensor:
    """Describe one input or output; a buffer or work space has ``size`` and ``inline`` alone.

    dtype: the dtype's name.
    format: the layout on the device.
    shape: the shape in that layout.
    original_shape: the shape of the tensor itself; empty where the header does not have it.
    size: how many bytes it has in the file.
    inline: the bytes themselves, in files of the first version.
    """

    dtype: str = "DTYPE_0"
    format: str = FORMATS[0]
    shape: tuple[int, ...] = ()
    original_shape: tuple[int, ...] = ()
    size: int = 0
    inline: bytes | None = None


Parts = Mapping[str, Sequence[Tensor]]
"""What lies in a file, by ``input``, ``output``, ``l1buffer`` and ``space``, in the order of the file."""


def parse_dump_data(message: memoryview) -> tuple[str, Parts]:
    """Return the operator's full name, and what lies in the file. Raises DamagedError where there is no header."""
    op_name = ""
    parts: dict[str, list[Tensor]] = {"input": [], "output": [], "l1buffer": [], "space": []}
    for number, value in _fields(message):
        if number == 6:
            op_name = _text(value)
        elif number in _PARTS:
            io, readers = _PARTS[number]
            found = {}
            for part, inner in _fields(_message(value)):
                if part in readers:
                    key, read = readers[part]
                    found[key] = read(inner)
            parts[io].append(Tensor(**found))
            if sum(map(len, parts.values())) > _MOST_TENSORS:
                raise DamagedError(f"the header lists over {_MOST_TENSORS} tensors")
    return op_name, parts


def _fields(message: memoryview) -> Iterator[tuple[int, _Value]]:
    """Yield (field number, value) of a message in order; a value is an int, or the bytes of a text or a message.

    Raises DamagedError when the bytes are not a message.
    """
    at, end, count = 0, len(message), 0
    while at < end:
        count += 1
        if count > _MOST_FIELDS:
            raise DamagedError(f"a protobuf message has over {_MOST_FIELDS} fields")
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise DamagedError(f"there is no protobuf field with the number {number}")
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
        elif kind == _BYTES:
            size, at = _varint(message, at)
            yield number, _take(message, at, size)
            at += size
        elif size := _FIXED.get(kind, 0):
            yield number, int.from_bytes(_take(message, at, size), "little")
            at += size
        else:
            raise DamagedError(f"protobuf field {number} has the unknown wire type {kind}")


def _integers(value: _Value) -> Iterator[int]:
    """Yield the numbers of a repeated integer field, packed or one by one. Raises DamagedError when one is cut."""
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        yield number


def _signed(value: int) -> int:
    """Return an int32 or enum with its sign: a negative one is encoded in ten bytes."""
    return value - (1 << 64) if value >> 63 else value


def _text(value: _Value) -> str:
    if isinstance(value, int):
        raise DamagedError(f"a text was expected, and the number {value} is there")
    return bytes(value).decode("utf-8", "replace")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise DamagedError("a protobuf number is cut short")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise DamagedError("a protobuf number has over ten bytes")


def _take(data: memoryview, at: int, size: int) -> memoryview:
    if size > len(data) - at:
        raise DamagedError(f"a protobuf field of {size} bytes has only {len(data) - at} of them")
    return data[at : at + size]


def _dtype(value: _Value) -> str:
    number = _signed(_integer(value))
    return _DTYPES.get(number, f"DTYPE_{number}")


def _format(value: _Value) -> str:
    number = _signed(_integer(value))
    # The upper bits of a format carry its sub-format and C0 in newer releases.
    return FORMATS.get(number) or FORMATS.get(number & 0xFF) or f"FORMAT_{number}"


def _shape(value: _Value) -> tuple[int, ...]:
    dims: list[int] = []
    for number, sizes in _fields(_message(value)):
        for dim in _integers(sizes) if number == 1 else ():
            dims.append(dim)
            if len(dims) > _MOST_DIMENSIONS:
                raise DamagedError(f"a shape has over {_MOST_DIMENSIONS} dimensions")
    return tuple(dims)


def _inline(value: _Value) -> bytes | None:
    return bytes(_message(value)) or None


def _integer(value: _Value) -> int:
    if isinstance(value, int):
        return value
    raise DamagedError("a number was expected in the header, and bytes are there")


def _message(value: _Value) -> memoryview:
    if isinstance(value, int):
        raise DamagedError(f"a part of the header was expected, and the number {value} is there")
    return value


Readers = dict[int, tuple[str, Callable[[_Value], Any]]]
"""The fields of a part by their numbers: what they are called here, and how they are read."""
_TENSOR: Readers = {1: ("dtype", _dtype), 2: ("format", _format), 3: ("shape", _shape)}
_PIECE: Readers = {2: ("inline", _inline), 3: ("size", _integer)}
_PARTS: dict[int, tuple[str, Readers]] = {
    3: ("output", {**_TENSOR, 5: ("inline", _inline), 6: ("size", _integer), 7: ("original_shape", _shape)}),
    4: ("input", {**_TENSOR, 4: ("inline", _inline), 5: ("size", _integer), 6: ("original_shape", _shape)}),
    5: ("l1buffer", _PIECE),
    8: ("space", _PIECE),
}
