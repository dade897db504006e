"""Read protobuf's wire format without protobuf, of which MindSpore pins a version.

Covers only what a dump's header needs, and checks each length against the bytes that are there.
Source: https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator

from probe_format.errors import DamagedError

Value = int | memoryview
_MOST_FIELDS = 1 << 20  # far beyond any header: millions of tiny ones would take minutes
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}  # the wire types of numbers of a fixed size, and their bytes


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
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


def integers(value: Value) -> Iterator[int]:
    """Yield the numbers of a repeated integer field, packed or one by one. Raises DamagedError when one is cut."""
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        yield number


def signed(value: int) -> int:
    """Return an int32 or enum with its sign: a negative one is encoded in ten bytes."""
    return value - (1 << 64) if value >> 63 else value


def text(value: Value) -> str:
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
