"""Parse the header of an Ascend ``bin`` file, toolkit.dumpdata.DumpData (spec/kernel-files.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import frozen
from probe_format.errors import DamagedError

from .protobuf_wire import Value, fields, integers, signed, text

__all__ = ["FORMATS", "DumpData", "Piece", "Tensor", "parse_dump_data"]

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
    """Describe one input or output, as the header has it.

    dtype: its name.
    format: the layout on the device.
    shape: in that layout.
    original_shape: of the tensor itself, empty where the header does not have it.
    size: bytes in the file.
    inline: the bytes, in files of the first version.
    """

    dtype: str
    format: str
    shape: tuple[int, ...] = ()
    original_shape: tuple[int, ...] = ()
    size: int = 0
    inline: bytes | None = None


@frozen
class Piece:
    """Describe a buffer (``l1buffer``) or work space (``space``), whose bytes have no dtype or shape."""

    size: int
    inline: bytes | None = None


@frozen
class DumpData:
    """Hold a whole header.

    time: in microseconds.
    op_name: the full name of the operator.
    """

    version: str = ""
    time: int = 0
    op_name: str = ""
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    buffers: tuple[Piece, ...] = ()
    spaces: tuple[Piece, ...] = ()


def parse_dump_data(message: memoryview) -> DumpData:
    """Parse a header. Raises DamagedError when the bytes are not one."""
    found: dict[str, Any] = {}
    parts: dict[str, list[Any]] = {}
    for number, value in fields(message):
        if number in _PLAIN:
            key, plain = _PLAIN[number]
            found[key] = plain(value)
        elif number in _PARTS:
            key, part = _PARTS[number]
            parts.setdefault(key, []).append(part(_message(value)))
            if sum(map(len, parts.values())) > _MOST_TENSORS:
                raise DamagedError(f"the header lists over {_MOST_TENSORS} tensors")
    found |= {key: tuple(each) for key, each in parts.items()}
    return DumpData(**found)


def _tensor(message: memoryview, *, data: int, size: int, original: int) -> Tensor:
    dtype = format_ = nbytes = 0
    shape: tuple[int, ...] = ()
    original_shape: tuple[int, ...] = ()
    inline: bytes | None = None
    for number, value in fields(message):
        if number == 1:
            dtype = signed(_integer(value))
        elif number == 2:
            format_ = signed(_integer(value))
        elif number == 3:
            shape = _shape(_message(value))
        elif number == data:
            inline = bytes(_message(value)) or None
        elif number == size:
            nbytes = _integer(value)
        elif number == original:
            original_shape = _shape(_message(value))
    # The upper bits of a format carry its sub-format and C0 in newer releases.
    name = FORMATS.get(format_) or FORMATS.get(format_ & 0xFF) or f"FORMAT_{format_}"
    return Tensor(_DTYPES.get(dtype, f"DTYPE_{dtype}"), name, shape, original_shape, nbytes, inline)


def _piece(message: memoryview) -> Piece:
    size, inline = 0, None
    for number, value in fields(message):
        if number == 2:
            inline = bytes(_message(value)) or None
        elif number == 3:
            size = _integer(value)
    return Piece(size, inline)


def _shape(message: memoryview) -> tuple[int, ...]:
    dims: list[int] = []
    for number, value in fields(message):
        if number == 1:
            for dim in integers(value):
                dims.append(dim)
                if len(dims) > _MOST_DIMENSIONS:
                    raise DamagedError(f"a shape has over {_MOST_DIMENSIONS} dimensions")
    return tuple(dims)


def _integer(value: Value) -> int:
    if isinstance(value, int):
        return value
    raise DamagedError("a number was expected in the header, and bytes are there")


def _message(value: Value) -> memoryview:
    if isinstance(value, int):
        raise DamagedError(f"a part of the header was expected, and the number {value} is there")
    return value


#: The fields of a header by their numbers: what they are called here, and how they are read.
_PLAIN: dict[int, tuple[str, Callable[[Value], int | str]]] = {
    1: ("version", text), 2: ("time", _integer), 6: ("op_name", text),
}  # fmt: skip
_PARTS: dict[int, tuple[str, Callable[[memoryview], Tensor | Piece]]] = {
    3: ("outputs", partial(_tensor, data=5, size=6, original=7)),
    4: ("inputs", partial(_tensor, data=4, size=5, original=6)),
    5: ("buffers", _piece),
    8: ("spaces", _piece),
}
