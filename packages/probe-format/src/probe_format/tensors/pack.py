"""Find tensor files in packs, and open or map them, as well as tensor files that are in no pack.

A pack is a file to which many tensor files are appended. What stands before each in it, the head of its entry, is
made here as well, for whoever writes packs (spec/layout.md, 2.3).
"""

import io
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from probe_format.checksum import crc32, stream_crc32
from probe_format.errors import DamagedError
from probe_format.excerpts import brief
from probe_format.names import MAX_BYTES
from probe_format.plain_files import refuse_link

_MAGIC, _START, _HEAD = b"PrbE", struct.Struct("<4sI"), struct.Struct("<QIHH")
#: A content begins at a multiple of so many bytes: mapped into memory it is aligned as in a file of its own.
_ALIGNED = 64
_MOST, _PIECE = 512, 1 << 20
_PACK = re.compile(r"[0-9]{3,18}\.pack", re.ASCII)
#: What `names.safe_file_name` gives, with either ending.
_NAME = re.compile(rb"(?!.{%d})[A-Za-z0-9._-]+\.(?:pt|npy)" % (MAX_BYTES + 1))


@frozen
class Entry:
    """Say where a tensor file is in a pack.

    path: of the pack.
    start, size: of the content, in bytes.
    crc: of the tensor file, as the entry's head says.
    """

    path: Path
    name: str
    start: int
    size: int
    crc: int

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    @property
    def suffix(self) -> str:
        """Return ``.pt`` or ``.npy``."""
        return self.name[self.name.rindex(".") :]

    def pieces(self) -> Iterator[bytes]:
        """Yield the content piece by piece. Raises OSError."""
        with opened(self) as file:
            while piece := file.read(_PIECE):
                yield piece

    def check(self, wanted: object = None) -> None:
        """Raise DamagedError where the content is not what was written. wanted: its ``data_crc32``, if known."""
        with opened(self) as file:
            found = stream_crc32(file)
        for each in (f"{self.crc:08x}", wanted):
            if each not in (None, found):
                raise DamagedError(f"{self} was changed: its CRC-32 is {found}, and was {brief(each)}.")


Place = Path | str | Entry
"""Where a tensor file is: its path, or an entry."""


def entry_head(at: int, name: str, size: int, crc: int, *, again: bool = False) -> bytes:
    """Return what stands before the content of an entry.

    at: where the entry begins in its pack.
    size: of the content.
    crc: of the tensor file.
    again: whether the content is the name of another entry, whose tensor file this is too.
    """
    rest = _HEAD.pack(size, crc, len(name), again) + name.encode("ascii")
    rest += bytes(-(at + _START.size + len(rest)) % _ALIGNED)
    return _START.pack(_MAGIC, crc32(rest)) + rest


def packs(folder: Path) -> list[Path]:
    """Return the packs of a folder, which may be missing. Raises FormatError where one is a link, and OSError."""
    try:
        names = [name for name in os.listdir(folder) if _PACK.fullmatch(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [folder / name for name in sorted(names, key=lambda name: int(name[:-5]))]
    for path in found:
        refuse_link(path)
    return [path for path in found if path.is_file()]  # a pipe would be waited for


def entries(folder: Path) -> dict[str, Entry]:
    """Return the tensor files in the packs of a folder by their names. Raises as `packs`.

    An entry that is torn or has a damaged head is left out; the records, and `has_gap`, tell that it is missing.
    """
    found: dict[str, Entry] = {}
    for path in packs(folder):
        with open(path, "rb", buffering=0) as file:
            for entry, again, _ in _scanned(file.fileno(), path):
                if not again:
                    found[entry.name] = entry
                    continue
                other = os.pread(file.fileno(), min(entry.size, _MOST), entry.start).decode("latin-1")
                if other in found and found[other].crc == entry.crc:
                    found[entry.name] = evolve(found[other], name=entry.name)
    return found


def has_gap(path: Path) -> bool:
    """Return whether bytes that are no entry stand before an entry of a pack. Raises OSError.

    A kill leaves such bytes at the end alone.
    """
    with open(path, "rb", buffering=0) as file:
        return any(gap for *_, gap in _scanned(file.fileno(), path))


def _scanned(fd: int, path: Path) -> Iterator[tuple[Entry, bool, bool]]:
    """Yield each whole entry of a pack, whether it is a second name, and whether bytes before it are no entry."""
    at, size, gap = 0, os.fstat(fd).st_size, False
    while at < size:
        head = os.pread(fd, _MOST, at)
        found = _parsed(head, at, path)
        if found is None:
            at, gap = _next(fd, at + 1), True
            continue
        entry, again = found
        at = entry.start + entry.size
        if at <= size:
            yield entry, again, gap
        gap = False


def _parsed(raw: bytes, at: int, path: Path) -> tuple[Entry, bool] | None:
    if raw[:4] != _MAGIC or len(raw) < _START.size + _HEAD.size:
        return None
    size, crc, length, again = _HEAD.unpack_from(raw, _START.size)
    end = _START.size + _HEAD.size + length
    start = end + -(at + end) % _ALIGNED
    name = raw[end - length : end]
    if len(raw) < start or _START.unpack_from(raw)[1] != crc32(raw[_START.size : start]):
        return None
    if again > 1 or _NAME.fullmatch(name) is None:
        return None
    return Entry(path, name.decode(), at + start, size, crc), bool(again)


def _next(fd: int, at: int) -> int:
    """Return where the next head may begin, or the end of the pack."""
    while len(piece := os.pread(fd, _PIECE, at)) >= len(_MAGIC):
        found = piece.find(_MAGIC)
        if found >= 0:
            return at + found
        at += len(piece) - len(_MAGIC) + 1
    return at + len(piece)


class _Part(io.FileIO):
    """Read an entry as if it were a file."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.path)
        self._entry = entry
        self.seek(0)

    def tell(self) -> int:
        return super().tell() - self._entry.start

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        at = offset + (0, self.tell(), self._entry.size)[whence]
        return super().seek(self._entry.start + at) - self._entry.start

    def readinto(self, into: Any) -> int:
        return super().readinto(memoryview(into)[: max(0, self._entry.size - self.tell())]) or 0

    # FileIO's own do not call readinto, and read on to the end of the pack.
    read, readall = io.RawIOBase.read, io.RawIOBase.readall  # type: ignore[assignment]


def opened(place: Place) -> IO[bytes]:
    """Open a tensor file to read. Raises OSError."""
    if isinstance(place, Entry):
        return io.BufferedReader(_Part(place))
    return open(place, "rb")


def mapped(place: Place, dtype: Any, start: int, count: int) -> npt.NDArray[Any]:
    """Map ``count`` values into memory. start: where they begin in the tensor file, in bytes."""
    if isinstance(place, Entry):
        return mapped(place.path, dtype, place.start + start, count)
    values: npt.NDArray[Any] = np.memmap(place, dtype, "r", start, (count,))
    return values
