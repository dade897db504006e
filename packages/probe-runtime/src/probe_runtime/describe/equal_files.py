"""Write a file whose bytes an earlier one has as a second name of that one."""

from __future__ import annotations

import os
from collections.abc import Sequence

from probe_format.tensors import byte_count, write_parts

__all__ = ["EqualFiles"]

Buffer = bytes | memoryview

#: How many files are remembered; some 200 bytes each.
_MOST = 1 << 16
_BEGIN, _BLOCK = 1 << 10, 1 << 18


class EqualFiles:
    """Remember the files of a step by how they begin. Safe to use from many threads.

    The first part of a ``.pt`` file holds dtype, shape and the CRC-32 of the elements; of a ``.npy`` file, which has no
    such number, the first elements are taken too. Files that agree in this are most likely equal. What decides is a
    comparison of all bytes with those on disk.
    """

    def __init__(self) -> None:
        self._files: dict[int, tuple[str, int]] = {}
        self._room = _MOST

    def write(self, target: str, parts: Sequence[Buffer]) -> int:
        """Make the file ``target`` of these parts, by a second name where that will do; return the CRC-32 of its bytes.

        Raises OSError when it cannot be made.
        """
        head = parts[0] if target[-3:] == ".pt" else b"".join([*parts[:1], *(p[:_BEGIN] for p in parts[1:2])])
        key, files = hash(head), self._files
        if key in files:
            found, crc = files[key]
            if _holds(found, parts, byte_count(parts)):
                _link_or_copy(found, target)
                return crc
        crc = write_parts(target, parts)
        self._room -= 1
        if self._room <= 0:
            files, self._room = {}, _MOST
            self._files = files
        files[key] = target, crc
        return crc


def _holds(path: str, parts: Sequence[Buffer], size: int) -> bool:
    """Return whether a file consists of these parts, which have ``size`` bytes, and of nothing more."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if size < _BLOCK:
            return os.read(fd, size + 1) == b"".join(parts)
        for part in parts:
            view = memoryview(part).cast("B")
            for at in range(0, len(view), _BLOCK):
                block = bytes(view[at : at + _BLOCK])
                if os.read(fd, len(block)) != block:
                    return False
        return not os.read(fd, 1)
    except OSError:
        return False
    finally:
        os.close(fd)


def _link_or_copy(source: str, target: str) -> None:
    """Give ``source`` a second name; a copy where the file system has no hard links. Replaces ``target``."""
    if source == target:
        return
    try:
        try:
            os.link(source, target)
        except FileExistsError:
            os.unlink(target)
            os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        with open(source, "rb") as f:
            write_parts(target, [f.read()])
