"""Convert the floating-point formats that numpy lacks, bfloat16 and the 8-bit ones, to float32 and back.

float32 holds each of their values exactly, NaN payloads included, so a float32 file of such a tensor loses
nothing: `widen` then `bits_of` returns the same bits (spec/layout.md).
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

_NAMES = ("bfloat16", "float8e4m3fn", "float8e5m2", "hifloat8")


def narrow_name(dtype: str) -> str | None:
    """Return ``bfloat16``, ``float8e4m3fn``, ``float8e5m2`` or ``hifloat8`` for a framework's name, else None.

    dtype: ``BFloat16``, ``torch.float8_e4m3fn``, ``Float8E5M2``, ...
    """
    name = dtype.rpartition(".")[2].replace("_", "").lower()
    return name if name in _NAMES else None


def widen(bits: npt.NDArray[Any], name: str) -> npt.NDArray[np.float32]:
    """Return the values, as float32 of the same shape.

    bits: uint16 for bfloat16, uint8 for the others.
    name: what `narrow_name` returns, or ``float8e4m3fnuz``, ``float8e5m2fnuz``, ``float8e8m0fnu``.
    """
    if name == "bfloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    wide: npt.NDArray[np.float32] = code_values(name)[bits].view(np.float32)
    return wide


def bits_of(values: npt.NDArray[np.float32], name: str) -> npt.NDArray[Any]:
    """Return the bits from which `widen` made ``values``: uint16 for bfloat16, uint8 for the others.

    Raises ValueError when the format cannot hold some value.
    """
    wide = np.ascontiguousarray(values, np.float32).reshape(np.shape(values)).view(np.uint32)
    if name == "bfloat16":
        if np.any(wide & np.uint32(0xFFFF)):
            raise ValueError("some values have more digits than bfloat16")
        return (wide >> np.uint32(16)).astype(np.uint16)
    table = code_values(name)
    order = np.argsort(table, kind="stable")
    at = np.minimum(np.searchsorted(table[order], wide), table.size - 1)
    codes = order[at]
    if np.any(table[codes] != wide):
        raise ValueError(f"some values are not of the format {name}")
    return codes.astype(np.uint8)


@cache
def code_values(name: str) -> npt.NDArray[np.uint32]:
    """Return the float32 bits of each of the 256 codes."""
    if name == "float8e8m0fnu":  # powers of two without a sign
        return np.array([1 << 22, *(code << 23 for code in range(1, 255)), 0x7FC00000], np.uint32)
    positive = np.array([_POSITIVE[name](code) for code in range(128)], np.uint32)
    negative = positive | np.uint32(0x80000000)
    if name == "hifloat8" or name.endswith("fnuz"):  # no negative zero: its code is the only NaN
        negative[0] = 0x7FC00000
    return np.concatenate([positive, negative])


def _float32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def _ieee(mantissa_bits: int, bias: int, code: int) -> int:
    exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    part = mantissa / (1 << mantissa_bits)
    return _float32(part * 2.0 ** (1 - bias) if exponent == 0 else (1 + part) * 2.0 ** (exponent - bias))


def _e4m3fn(code: int) -> int:
    return 0x7FC00000 if code == 0x7F else _ieee(3, 7, code)


def _e5m2(code: int) -> int:
    # As the upper half of a float16: infinity, and three NaNs that stay different.
    return _ieee(2, 15, code) if code < 0x7C else 0x7F800000 | (code & 3) << 21


def _hifloat8(code: int) -> int:
    """Decode a tapered float: a prefix of 2 to 4 bits says how many of the rest are exponent, before the mantissa."""
    if code == 0x6F:
        return 0x7F800000
    if code >> 3 == 0:  # 0000: the smallest values, powers of two
        return _float32(2.0 ** (code - 23)) if code else 0
    if code >> 3 == 1:  # 0001: exponent 0
        width, rest = 0, code & 7
    elif code >> 4 == 1:  # 001
        width, rest = 1, code & 15
    else:  # 01, 10, 11
        width, rest = (code >> 5) + 1, code & 31
    mantissa_bits = {0: 3, 1: 3, 2: 3, 3: 2, 4: 1}[width]
    mantissa = rest & ((1 << mantissa_bits) - 1)
    exponent = 0
    if width:
        field = rest >> mantissa_bits
        size = (1 << (width - 1)) | (field & ((1 << (width - 1)) - 1))  # the leading one is not stored
        exponent = -size if field >> (width - 1) else size
    return _float32((1 + mantissa / (1 << mantissa_bits)) * 2.0**exponent)


_POSITIVE: dict[str, Callable[[int], int]] = {
    "float8e4m3fn": _e4m3fn,
    "float8e5m2": _e5m2,
    "hifloat8": _hifloat8,
    "float8e4m3fnuz": partial(_ieee, 3, 8),
    "float8e5m2fnuz": partial(_ieee, 2, 16),
}
