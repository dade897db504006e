"""Ascend's ``bin`` files, made by the layout in spec/kernel-files.md."""

from __future__ import annotations

import struct
from pathlib import Path


def varint(n: int) -> bytes:
    out = bytearray()
    while True:
        out.append(n & 0x7F | (0x80 if n > 0x7F else 0))
        n >>= 7
        if not n:
            return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def shape(field: int, dims: tuple[int, ...]) -> bytes:
    return block(field, block(1, b"".join(map(varint, dims)))) if dims else block(field, b"")


def made(dtype: int, layout: int, dims: tuple[int, ...], raw: bytes, original: tuple[int, ...] = ()) -> bytes:
    """A file with one output."""
    tensor = number(1, dtype) + number(2, layout) + shape(3, dims) + number(6, len(raw)) + shape(7, original)
    header = block(1, b"2.0") + number(2, 1623124369613540) + block(3, tensor) + block(6, b"Default/x/Op-op1")
    return struct.pack("<Q", len(header)) + header + raw


def written(folder: Path, content: bytes, name: str = "Op.Default_x_Op-op1.1.2.3") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path
