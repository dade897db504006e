"""Find values again by their places in the journal that this process is writing."""

import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from probe_format.checksum import crc32

#: What stands before each event: its length and its CRC-32.
FRAME = struct.Struct("<II")
#: A value itself, or its place: where its frame begins, and in the lowest bits the number of its line.
Reference = bytes | int

_LINE_BITS = 20
_LINE = (1 << _LINE_BITS) - 1
#: How much is read at a time, and how many such pieces, and frames, are kept.
_BLOCK = 1 << 18
_MOST_BLOCKS, _MOST_FRAMES = 4, 16


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
        self._blocks: list[tuple[int, bytes]] = []
        self._frames: dict[int, list[bytes]] = {}

    def value(self, place: int) -> bytes:
        """Return the value at a place. Raises OSError when the file does not hold what was written."""
        at, line = place >> _LINE_BITS, place & _LINE
        frames = self._frames
        try:
            return (frames[at] if at in frames else self._frame(at))[line]
        except IndexError:
            raise self._changed(at) from None

    def _frame(self, at: int) -> list[bytes]:
        start, block = self._block(at)
        begin = at - start + FRAME.size
        if begin > len(block):
            raise self._changed(at)
        size, crc = FRAME.unpack_from(block, at - start)
        payload = block[begin : begin + size]
        if len(payload) < size:
            payload = os.pread(self._fd, size, at + FRAME.size)
        if crc32(payload) != crc:
            raise self._changed(at)
        if len(self._frames) >= _MOST_FRAMES:
            del self._frames[next(iter(self._frames))]
        self._frames[at] = lines = payload.split(b"\n")
        return lines

    def _block(self, at: int) -> tuple[int, bytes]:
        """Return a piece of the file that holds the beginning of a frame, and where the piece begins."""
        for found in self._blocks:
            if found[0] <= at <= found[0] + _BLOCK - FRAME.size:
                return found
        if len(self._blocks) >= _MOST_BLOCKS:
            del self._blocks[-1]
        found = at, os.pread(self._fd, _BLOCK, at)
        self._blocks.insert(0, found)
        return found

    def _changed(self, at: int) -> OSError:
        return OSError(errno.EIO, f"it does not hold what was written at byte {at}", str(self._path))
