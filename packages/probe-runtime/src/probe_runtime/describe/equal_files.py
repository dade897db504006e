"""Write a file whose bytes an earlier one has as a second name of that one."""

import os
from collections.abc import Callable, Sequence

from probe_format.safe_files import Folder
from probe_format.tensors import byte_count, write_parts

Buffer = bytes | memoryview
#: Takes a name, the pieces of a file, and its folder, and makes the file; returns the CRC-32 of its bytes.
WriteFile = Callable[[str, Sequence[Buffer], Folder], int]

#: How many files are remembered, some 200 bytes each, and how many bytes of them.
_MOST, _KEPT = 1 << 16, 16 << 20
_SMALL = 1 << 17
_BEGIN, _BLOCK = 1 << 10, 1 << 18
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class EqualFiles:
    """Remember the files of a step by how they begin. Safe to use from many threads.

    The first part of a ``.pt`` file holds dtype, shape and the CRC-32 of the elements; of a ``.npy`` file, which has no
    such number, the first elements are taken too. Files that agree in this are most likely equal. What decides is a
    comparison of all bytes: with those kept of small files, with those on disk of others.
    """

    def __init__(self, make: WriteFile = write_parts) -> None:
        """Remember nothing yet. make: makes a file that no earlier one is equal to."""
        self._make = make
        self._files: dict[int, tuple[str, int, bytes | None]] = {}
        self._keys: dict[str, int] = {}
        self._room, self._kept = _MOST, _KEPT

    def write(self, target: str, parts: Sequence[Buffer], folder: Folder) -> int:
        """Make the file ``target`` of these parts in a folder, by a second name where that will do; return its CRC-32.

        Raises OSError when it cannot be made.
        """
        head = parts[0] if target[-3:] == ".pt" else b"".join([*parts[:1], *(p[:_BEGIN] for p in parts[1:2])])
        key, files, size = hash(head), self._files, byte_count(parts)
        whole = b"".join(parts) if size < _SMALL else None
        files.pop(self._keys.pop(target, 0), None)  # it gets other bytes than those it was remembered for
        if key in files:
            found, crc, kept = files[key]
            same = _holds(found, parts, size, folder) if kept is None else kept == whole
            if same and _link_or_copy(found, target, folder):
                return crc
        crc = self._make(target, parts if whole is None else (whole,), folder)
        self._room -= 1
        if self._room <= 0:
            files, self._room, self._kept = {}, _MOST, _KEPT
            self._files, self._keys = files, {}
        if self._kept < size:
            whole = None
        elif whole is not None:
            self._kept -= size
        files[key], self._keys[target] = (target, crc, whole), key
        return crc


def _holds(name: str, parts: Sequence[Buffer], size: int, folder: Folder) -> bool:
    """Return whether a file consists of these parts, which have ``size`` bytes, and of nothing more."""
    try:
        fd = os.open(name, _READ, dir_fd=folder.fd)
    except OSError:
        return False
    try:
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


def _link_or_copy(source: str, target: str, folder: Folder) -> bool:
    """Give ``source`` a second name; a copy where the file system has no hard links. Replaces ``target``.

    Returns False where ``source`` is gone.
    """
    at = folder.fd
    try:
        os.link(source, target, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
        return True
    except OSError:  # the name is taken, or there are no links here
        pass
    try:
        folder.remove(target)
        os.link(source, target, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:
        with open(os.open(source, _READ, dir_fd=at), "rb") as f:
            write_parts(target, [f.read()], folder)
    return True
