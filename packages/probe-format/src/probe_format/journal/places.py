"""Find values again by their places in the journal that this process is writing."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

__all__ = ["FRAME", "Places", "Reference", "places_of"]

#: What stands before each event: its length and its CRC-32.
FRAME = struct.Struct("<II")
#: A value itself, or its place: where its frame begins, and in the lowest bits the number of its line.
Reference = bytes | int

_LINE_BITS = 20
_BLOCK = 1 << 18
_MOST = 16


def places_of(at: int, count: int) -> Sequence[int]:
    """Return the places of the values of an event. at: where its frame begins; count: how many values it has."""
    first = (at << _LINE_BITS) + 1
    return range(first, first + count)


class Places:
    """Read values from the file, a block at a time: the journal of a long step need not fit into the memory."""

    def __init__(self, fd: int, path: Path) -> None:
        """Read from an open file as it is now. path: its name, for messages."""
        self._fd = fd
        self._path = path
        self._blocks: dict[int, bytes] = {}
        self._frames: dict[int, list[bytes]] = {}

    def value(self, place: int) -> bytes:
        """Return the value at a place. Raises OSError when the file does not hold what was written."""
        at, line = place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)
        try:
            return (self._frames.get(at) or self._frame(at))[line]
        except IndexError:
            raise self._changed(at) from None

    def _frame(self, at: int) -> list[bytes]:
        size, crc = FRAME.unpack(self._bytes(at, FRAME.size))
        payload = self._bytes(at + FRAME.size, size)
        if zlib.crc32(payload) != crc:
            raise self._changed(at)
        _make_room(self._frames)
        self._frames[at] = lines = payload.split(b"\n")
        return lines

    def _bytes(self, at: int, size: int) -> bytes:
        number, inside = divmod(at, _BLOCK)
        if inside + size > _BLOCK:
            found = os.pread(self._fd, size, at)
        else:
            if number not in self._blocks:
                _make_room(self._blocks)
                self._blocks[number] = os.pread(self._fd, _BLOCK, number * _BLOCK)
            found = self._blocks[number][inside : inside + size]
        if len(found) < size:
            raise self._changed(at)
        return found

    def _changed(self, at: int) -> OSError:
        return OSError(errno.EIO, f"it does not hold what was written at byte {at}", str(self._path))


def _make_room(known: dict[int, bytes] | dict[int, list[bytes]]) -> None:
    """Forget the entry that was made first, where there are many."""
    if len(known) >= _MOST:
        del known[next(iter(known))]
