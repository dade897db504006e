"""Write equal bytes once: a file with the bytes of an earlier file becomes a second name of that file."""

from collections.abc import Sequence

from probe_format.safe_files import Folder
from probe_format.tensors import byte_count
from xxhash import xxh3_128, xxh3_128_digest

from .tensor_store import Buffer, TensorStore, WriteFile

#: How many files are remembered, some 300 bytes each.
MOST = 1 << 16
_SMALL = 1 << 17


def hash_of(parts: Sequence[Buffer]) -> bytes:
    """Return the hash by which files are equal: of the parts as one file, however they are cut."""
    state = xxh3_128()
    for part in parts:
        state.update(part)
    return state.digest()


class EqualFiles:
    """Remember the files of a step by a hash of their bytes. Safe to use from many threads.

    The hash has 128 bits, so that no two different tensors of a run have the same by chance. To compare the bytes
    themselves would take three times as long, because those of the earlier file must be read for it.
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
        if byte_count(parts) < _SMALL:
            parts = (b"".join(parts),)  # which costs less than a call for each
            found = xxh3_128_digest(parts[0])
        else:
            found = hash_of(parts)
        files = self._files
        if target in self._hashes:  # it gets other bytes than those it was remembered for
            files.pop(self._hashes.pop(target, b""), None)
        try:
            source, crc = files[found]
        except KeyError:  # also where another thread has just replaced that file
            pass
        else:
            if self._store.name_again(source, target, crc, folder):
                return crc
        crc = self._make(target, parts, folder)
        if len(files) >= MOST:
            files, self._hashes = {}, {}
            self._files = files
        files[found], self._hashes[target] = (target, crc), found
        return crc
