"""Write a file whose bytes an earlier one has as a second name of that one."""

from collections.abc import Sequence

from probe_format.safe_files import Folder
from probe_format.tensors import byte_count

from .tensor_store import Buffer, TensorStore, WriteFile

#: How many files are remembered, some 200 bytes each, and how many bytes of them.
_MOST, _KEPT = 1 << 16, 16 << 20
_SMALL = 1 << 17
_BEGIN = 1 << 10


class EqualFiles:
    """Remember the files of a step by how they begin. Safe to use from many threads.

    The first part of a ``.pt`` file holds dtype, shape and the CRC-32 of the elements; of a ``.npy`` file, which has no
    such number, the first elements are taken too. Files that agree in this are most likely equal. What decides is a
    comparison of all bytes: with those kept of small files, with those on disk of others.
    """

    def __init__(self, store: TensorStore, make: WriteFile) -> None:
        """Remember nothing yet.

        store: keeps the files.
        make: makes a file that no earlier one is equal to.
        """
        self._store, self._make = store, make
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
            same = self._store.holds(found, parts, size, folder) if kept is None else kept == whole
            if same and self._store.name_again(found, target, crc, folder):
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
