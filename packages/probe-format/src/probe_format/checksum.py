"""Compute checksums: the CRC-32 of bytes and of files, and the XOR of bytes.

The key ``md5`` of a tensor object holds one of them, as msprobe's readers expect a checksum there.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    _crc32 = zlib.crc32

Buffer = bytes | memoryview

_PIECE = 1 << 20

#: zlib's CRC-32 of contiguous bytes; a second argument is the CRC-32 of the bytes before them.
#: `isal` (extra ``fast``), when installed, is several times as fast.
crc32: Callable[..., int] = _crc32


def file_crc32(path: Path | str) -> str:
    """Return the CRC-32 (zlib) of a file's bytes as 8 lower-case hex digits. Raises OSError."""
    with open(path, "rb") as file:
        return stream_crc32(file)


def stream_crc32(file: IO[bytes]) -> str:
    """Return the CRC-32 of what an open file still has in the same form, reading it piece by piece. Raises OSError."""
    found = 0
    while piece := file.read(_PIECE):
        found = crc32(piece, found)
    return f"{found:08x}"


def xor_hex(data: Buffer) -> str:
    """Return the XOR of the bytes' little-endian 64-bit words, zero-padded, as ``0x`` and 16 hex digits."""
    view = memoryview(data)
    view = view.cast("B") if view.nbytes else memoryview(b"")
    whole = len(view) // 8 * 8
    words = np.frombuffer(view[:whole], dtype="<u8")
    total = int(np.bitwise_xor.reduce(words)) if words.size else 0
    total ^= int.from_bytes(bytes(view[whole:]), "little")
    return f"0x{total:016x}"
