"""Keep the tensor files of a step: each as a file of its own, or many in one file, a pack.

A tensor file that is there already can get a second name: a hard link (a copy where there are none), or a short entry
of the pack. The packs are specified in spec/layout.md of probe-format, 2.3.
"""

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Union

from attrs import define
from probe_format.safe_files import Descriptor, Folder, naming
from probe_format.tensors import byte_count, entry_head, parts_crc32, put_parts, write_parts

Buffer = bytes | memoryview
#: Takes a name, the pieces of a file, and its folder, and makes the file; returns the CRC-32 of its bytes.
WriteFile = Callable[[str, Sequence[Buffer], Folder], int]
TensorStore = Union["OwnFiles", "PackedFiles"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
#: The bytes from which on a pack gets no more.
FULL = 256 << 20


class OwnFiles:
    """Keep each tensor file as a file of its own. A second name is a hard link; a copy where there are none.

    block: a file takes a multiple of so many bytes.
    """

    block = 4096

    def write(self, name: str, parts: Sequence[Buffer], folder: Folder) -> int:
        """Make a file, in the place of one of that name; return its CRC-32. Raises OSError when it cannot."""
        return write_parts(name, parts, folder)

    def name_again(self, source: str, target: str, crc: int, folder: Folder) -> bool:
        """Give a file of this CRC-32 a second name, which no other file has then. Return False if it is gone."""
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

    def close(self) -> None:
        """Close what is open."""


@define
class _Pack:
    """A pack that is appended to.

    name: the name of its file.
    end: how many bytes it has.
    """

    name: str
    file: Descriptor
    end: int = 0


class PackedFiles:
    """Append tensor files to packs, which no other object or process appends to. Safe to use from many threads."""

    block = 128

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pack: _Pack | None = None
        self._pid = os.getpid()

    def write(self, name: str, parts: Sequence[Buffer], folder: Folder) -> int:
        crc = parts_crc32(parts)
        with self._lock:
            self._append(name, parts, crc, folder)
        return crc

    def name_again(self, source: str, target: str, crc: int, folder: Folder) -> bool:
        with self._lock:
            self._append(target, (source.encode(),), crc, folder, again=True)
        return True

    def _append(
        self, name: str, parts: Sequence[Buffer], crc: int, folder: Folder, *, again: bool = False
    ) -> None:
        """Append an entry. again: its content is the name of an earlier entry, whose tensor file it shares."""
        pack = self._taken(folder)
        size = byte_count(parts)
        head = entry_head(pack.end, name, size, crc, again=again)
        try:
            put_parts(pack.file.fd, (head, *parts))
        except OSError as error:
            try:  # half an entry is useless, and a full disk needs the space
                os.ftruncate(pack.file.fd, pack.end)
            except OSError:
                pack.file.close()
            else:
                self._give_back(pack)
            with naming(folder.path / pack.name):
                raise error
        pack.end += len(head) + size
        self._give_back(pack)

    def _taken(self, folder: Folder) -> _Pack:
        """Return the pack to append to; a new one where there is none, it is full, or the parent of this fork has it.

        Nobody else has it until it is given back: a signal handler that comes meanwhile appends to a pack of its own.
        """
        pack, self._pack = self._pack, None
        if pack is not None and pack.end < FULL and self._pid == os.getpid():
            return pack
        if pack is not None:
            pack.file.close()
        for number in itertools.count():
            name = f"{number:03}.pack"
            with contextlib.suppress(FileExistsError):
                os.close(folder.new_file(name))
                break
        self._pid = os.getpid()
        return _Pack(name, Descriptor(lambda: os.open(name, _APPEND, dir_fd=folder.fd)))

    def _give_back(self, pack: _Pack) -> None:
        self.close()
        self._pack = pack

    def close(self) -> None:
        pack, self._pack = self._pack, None
        if pack is not None:
            pack.file.close()
