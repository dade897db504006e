"""Parse the header of an Ascend ``bin`` file, toolkit.dumpdata.DumpData (spec/kernel-files.md)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen
from probe_format.errors import DamagedError

from .protobuf_wire import Value, fields, integers, signed, text

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

    dtype: its name.
    format: the layout on the device.
    shape: in that layout.
    original_shape: of the tensor itself, empty where the header does not have it.
    size: bytes in the file.
    inline: the bytes, in files of the first version.
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
    """Return the operator's full name, and what lies in the file. Raises DamagedError for no header."""
    op_name = ""
    parts: dict[str, list[Tensor]] = {"input": [], "output": [], "l1buffer": [], "space": []}
    for number, value in fields(message):
        if number == 6:
            op_name = text(value)
        elif number in _PARTS:
            io, readers = _PARTS[number]
            found = {}
            for part, inner in fields(_message(value)):
                if part in readers:
                    key, read = readers[part]
                    found[key] = read(inner)
            parts[io].append(Tensor(**found))
            if sum(map(len, parts.values())) > _MOST_TENSORS:
                raise DamagedError(f"the header lists over {_MOST_TENSORS} tensors")
    return op_name, parts


def _dtype(value: Value) -> str:
    number = signed(_integer(value))
    return _DTYPES.get(number, f"DTYPE_{number}")


def _format(value: Value) -> str:
    number = signed(_integer(value))
    # The upper bits of a format carry its sub-format and C0 in newer releases.
    return FORMATS.get(number) or FORMATS.get(number & 0xFF) or f"FORMAT_{number}"


def _shape(value: Value) -> tuple[int, ...]:
    dims: list[int] = []
    for number, sizes in fields(_message(value)):
        for dim in integers(sizes) if number == 1 else ():
            dims.append(dim)
            if len(dims) > _MOST_DIMENSIONS:
                raise DamagedError(f"a shape has over {_MOST_DIMENSIONS} dimensions")
    return tuple(dims)


def _inline(value: Value) -> bytes | None:
    return bytes(_message(value)) or None


def _integer(value: Value) -> int:
    if isinstance(value, int):
        return value
    raise DamagedError("a number was expected in the header, and bytes are there")


def _message(value: Value) -> memoryview:
    if isinstance(value, int):
        raise DamagedError(f"a part of the header was expected, and the number {value} is there")
    return value


Readers = dict[int, tuple[str, Callable[[Value], Any]]]
"""The fields of a part by their numbers: what they are called here, and how they are read."""
_TENSOR: Readers = {1: ("dtype", _dtype), 2: ("format", _format), 3: ("shape", _shape)}
_PIECE: Readers = {2: ("inline", _inline), 3: ("size", _integer)}
_PARTS: dict[int, tuple[str, Readers]] = {
    3: ("output", {**_TENSOR, 5: ("inline", _inline), 6: ("size", _integer), 7: ("original_shape", _shape)}),
    4: ("input", {**_TENSOR, 4: ("inline", _inline), 5: ("size", _integer), 6: ("original_shape", _shape)}),
    5: ("l1buffer", _PIECE),
    8: ("space", _PIECE),
}
