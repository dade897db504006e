"""Find dtypes by the names that dumps give them, and decode their bytes to numpy arrays."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen
from probe_format.errors import DamagedError, FormatError
from probe_format.suggest import did_you_mean
from probe_format.tensors import widen

Array = npt.NDArray[Any]


@frozen
class Dtype:
    """Describe one dtype.

    bits: of one element in a file.
    base: the dtype as which numpy reads the bytes.
    numeric: whether the array that `decode` gives holds the values, rather than their codes.
    """

    name: str
    bits: int
    base: str
    numeric: bool = True

    @property
    def packed_codes(self) -> bool:
        """Return whether `decode` gives bytes with several elements each, which fit no shape."""
        return not self.numeric and self.bits < 8

    def size(self, count: int) -> int:
        return (count * self.bits + 7) // 8


_ALL = [
    *(Dtype(name, 8 * np.dtype(name).itemsize, np.dtype(name).newbyteorder("<").str) for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "complex64", "complex128",
    )),
    Dtype("bfloat16", 16, "<u2"),
    Dtype("complex32", 32, "<f2"),
    Dtype("float8_e5m2", 8, "|u1"),
    Dtype("float8_e4m3fn", 8, "|u1"),
    Dtype("int4", 4, "|u1"),
    Dtype("uint1", 1, "|u1"),
    Dtype("int2", 2, "|u1", False),
    Dtype("uint2", 2, "|u1", False),
    Dtype("hifloat8", 8, "|u1", False),
    Dtype("float8_e8m0", 8, "|u1", False),
]  # fmt: skip
_BY_NAME = {dtype.name: dtype for dtype in _ALL}
_ALIASES = {
    "half": "float16", "float": "float32", "double": "float64", "bf16": "bfloat16",
    "fp16": "float16", "fp32": "float32", "fp64": "float64",
    "f16": "float16", "f32": "float32", "f64": "float64",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "int": "int32", "uint": "uint32", "bool_": "bool", "float8e5m2": "float8_e5m2",
    "float8e4m3fn": "float8_e4m3fn", "e8m0": "float8_e8m0", "float8_e8m0fnu": "float8_e8m0",
}  # fmt: skip


def find_dtype(name: str) -> Dtype | None:
    """Return the dtype that a dump calls ``name`` (``Float32``, ``DT_BF16``, ...), None when unknown."""
    plain = name.lower().removeprefix("dt_")
    return _BY_NAME.get(_ALIASES.get(plain, plain))


def dtype_of(name: str) -> Dtype:
    if (found := find_dtype(name)) is not None:
        return found
    near = did_you_mean(name.lower().removeprefix("dt_"), _BY_NAME)
    raise FormatError(f"{name!r} is not a dtype that is known here. {near}".rstrip())


def is_numeric(name: str) -> bool:
    """Return whether `decode` gives values for the dtype ``name``, rather than codes; True for an unknown one."""
    found = find_dtype(name)
    return found is None or found.numeric


def lies_as_it_is(dtype: Dtype) -> bool:
    """Return whether `decode` only sees the bytes as elements of ``dtype.base``, one each."""
    return dtype.name not in _DECODERS and not dtype.packed_codes


def decode(raw: Array, dtype: Dtype, shape: tuple[int, ...] | None = None, what: str = "") -> Array:
    """Return the values in a file's bytes.

    raw: uint8, one dimension.
    shape: of the result; by default, and for packed codes, it has one dimension.
    what: names the tensor in an error.

    A dtype that numpy does not have becomes the smallest one that holds every value: bfloat16 and float8 float32,
    complex32 complex64, int4 int8, uint1 uint8. int2, uint2, hifloat8 and e8m0 stay bytes. int4 and uint1 are packed,
    low bits first: an odd number of elements leaves padding at the end.

    Raises DamagedError when the shape is impossible.
    """
    special = _DECODERS.get(dtype.name)
    values = raw.view(dtype.base) if special is None else special(raw.view(dtype.base))
    if shape is None or dtype.packed_codes:
        return values
    try:
        return values[: math.prod(shape)].reshape(shape)
    except ValueError as error:  # too many dimensions, or empty with others beyond all memory
        shown = f"{len(shape)} dimensions, {list(shape)[:8]}"
        raise DamagedError(f"{what} says it has {shown}: {error}.") from None


def _int4(codes: Array) -> Array:
    pairs = np.stack([codes & 15, codes >> 4], axis=1).reshape(-1).astype(np.int8)
    return (pairs ^ 8) - 8  # the fourth bit is the sign


_DECODERS: dict[str, Callable[[Array], Array]] = {
    "bfloat16": partial(widen, name="bfloat16"),
    "complex32": lambda halves: halves.astype(np.float32).view(np.complex64),
    "int4": _int4,
    "uint1": partial(np.unpackbits, bitorder="little"),
    "float8_e5m2": partial(widen, name="float8e5m2"),
    "float8_e4m3fn": partial(widen, name="float8e4m3fn"),
}
