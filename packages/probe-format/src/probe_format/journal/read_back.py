"""Read back the events of a journal that this process is writing."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["HEAD", "ReadBack"]

#: What stands before each event: its length and its CRC-32.
HEAD = struct.Struct("<II")
_WINDOW = 1 << 20
_GLIMPSE = 1 << 12


class ReadBack:
    """Read a part of the file at a time: the journal of a long step need not fit into the memory."""

    def __init__(self, fd: int, path: Path) -> None:
        """Read from an open file. path: its name, for messages."""
        self._fd = fd
        self._path = path
        self._window = b""
        self._start = self._stop = 0

    def events(self, start: int, stop: int) -> tuple[list[int], list[bytes], int]:
        """Return the places of the next events, at least one, the events, and the place after the last one.

        start: where the first one begins.
        stop: where the last one ends that may be returned.

        Raises OSError when the file does not hold what was written.
        """
        places: list[int] = []
        found: list[bytes] = []
        data, size = b"", min(_WINDOW, stop - start)
        while not found:
            data = os.pread(self._fd, size, start)
            if len(data) < size:
                raise self._changed(start)
            at, begin, end = 0, HEAD.size, 0
            while begin <= size:
                length, crc = HEAD.unpack_from(data, at)
                end = begin + length
                if end > size:
                    break
                event = data[begin:end]
                if zlib.crc32(event) != crc:
                    raise self._changed(start + at)
                places += (start + at,)
                found += (event,)
                at, begin = end, end + HEAD.size
            if not found and (end <= size or start + end > stop):
                raise self._changed(start)
            size = end  # an event that is longer than the window
        return places, found, start + at

    def event(self, at: int) -> bytes:
        """Return the event at a place that `events` gave. Raises OSError when it cannot be read."""
        return self.events_at((at,))[0]

    def events_at(self, places: Iterable[int]) -> list[bytes]:
        """Return the events at places that `events` gave. Raises OSError when they cannot be read."""
        found: list[bytes] = []
        for at in places:
            begin = at - self._start + HEAD.size
            if begin >= HEAD.size and begin <= self._stop:
                end = begin + HEAD.unpack_from(self._window, begin - HEAD.size)[0]
                if end <= self._stop:
                    found += (self._window[begin:end],)
                    continue
            if at < self._start:  # of a call that took long: the next ones are ahead again
                event = self._fetched(at, _GLIMPSE)[0]
            else:
                event, self._window = self._fetched(at, _WINDOW)
                self._start, self._stop = at, len(self._window)
            found += (event,)
        return found

    def _fetched(self, at: int, size: int) -> tuple[bytes, bytes]:
        """Return an event, and the bytes of the file from there on."""
        data = os.pread(self._fd, size, at)
        if len(data) >= HEAD.size:
            end = HEAD.size + HEAD.unpack_from(data)[0]
            if end > len(data):
                data = os.pread(self._fd, end, at)
            if end <= len(data):
                return data[HEAD.size : end], data
        raise self._changed(at)

    def _changed(self, at: int) -> OSError:
        return OSError(errno.EIO, f"it does not hold what was written at byte {at}", str(self._path))
