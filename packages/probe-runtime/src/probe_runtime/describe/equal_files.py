"""Write a file whose bytes an earlier one has as a second name of that one."""

from collections.abc import Sequence

from probe_format.safe_files import Folder
from xxhash import xxh3_128

from .tensor_store import Buffer, TensorStore, WriteFile

#: How many files are remembered, some 300 bytes each.
_MOST = 1 << 16


class EqualFiles:
    """Remember the files of a step by a hash of their bytes. Safe to use from many threads.

    The hash has 128 bits, of which no two tensors of a run are alike by chance. To compare the bytes themselves takes
    three times as long: those of the earlier file are to be read for it.
    """

    def __init__(self, store: TensorStore, make: WriteFile) -> None:
        """Remember nothing yet.

        store: keeps the files.
        make: makes a file that no earlier one is equal to.
        """
        self._store, self._make = store, make
        self._files: dict[bytes, tuple[str, int]] = {}
        self._hashes: dict[str, bytes] = {}

    def write(self, target: str, parts: Sequence[Buffer], folder: Folder) -> int:
        """Make the file ``target`` of these parts in a folder, by a second name where that will do; return its CRC-32.

        Raises OSError when it cannot be made.
        """
        state = xxh3_128()
        for part in parts:
            state.update(part)
        found, files = state.digest(), self._files
        files.pop(self._hashes.pop(target, b""), None)  # it gets other bytes than those it was remembered for
        if (known := files.get(found)) is not None:
            source, crc = known
            if self._store.name_again(source, target, crc, folder):
                return crc
        crc = self._make(target, parts, folder)
        if len(files) >= _MOST:
            files = self._files = {}
            self._hashes = {}
        files[found], self._hashes[target] = (target, crc), found
        return crc
