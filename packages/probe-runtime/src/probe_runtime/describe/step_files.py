"""Write the tensor files of one step: name them, write equal bytes once, and defer writing to a thread."""

import errno
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from probe_format.excerpts import error_text, unsignalled
from probe_format.journal import events, hole
from probe_format.jsonio import members
from probe_format.layout import dump_path_of
from probe_format.names import tensor_file_name
from probe_format.safe_files import Folder
from probe_format.tensors import byte_count
from probe_format.values import ValuePath
from probe_format.write import Coverage, NoRoom

from .equal_files import EqualFiles
from .file_queue import FileQueue
from .placement import Placement
from .tensor_options import TensorOptions
from .tensor_store import Buffer, OwnFiles, PackedFiles, TensorStore, WriteFile

#: The errors of a write where there is no room.
FULL = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT)


class StepFiles:
    """Write tensor files into one directory. Safe to use from many threads.

    options: where files go, and how.
    coverage: counts files that failed.
    append: takes the events of deferred files, and of what failed (spec/journal.md).
    numbers: gives the numbers of holes.
    write: makes a file, in place of the store.
    """

    def __init__(
        self,
        options: TensorOptions,
        coverage: Coverage,
        append: Callable[[Any], None],
        *,
        numbers: Iterator[int] | None = None,
        write: WriteFile | None = None,
    ) -> None:
        self._options = options
        self._store: TensorStore = PackedFiles() if options.packed else OwnFiles()
        self._make = write or self._store.write
        self._write = self._shared(self._make)
        self._folder = Folder(options.directory, dump_path_of(options.directory.parent))
        self._coverage = coverage
        self._append = append
        self._numbers = itertools.count(1) if numbers is None else numbers
        self._queue: FileQueue | None = None
        self._lock = threading.RLock()

    def limit(self, limited: Callable[[WriteFile, int], WriteFile]) -> None:
        """Write within a limit.

        limited: takes the function that writes a file, and the block of which a file takes a multiple; returns a
            function that does the same, but raises NoRoom beyond the limit.
        """
        self._write = self._shared(limited(self._make, self._store.block))

    def _shared(self, make: WriteFile) -> WriteFile:
        return EqualFiles(self._store, make).write if self._options.share else make

    def save(
        self, placement: Placement, path: ValuePath, suffix: str, parts: Sequence[Buffer], number: int = 0
    ) -> bytes:
        """Write one file; return the members that its tensor object gets: its name and checksum, a hole, or why
        it is lost.

        placement: the part of a record that the tensor is in.
        path: the path of the tensor in that part.
        suffix: the suffix of the file name, ``npy``.
        parts: the pieces of the file, which may change after this returns.
        number: the number of the hole, where there is one for this file already.

        Raises OSError when the disk is full, unless files are deferred or the placement takes the error (`lost`).
        """
        claim = tensor_file_name if placement.names is None else placement.names.claim
        name = claim(placement.record, placement.category, path, suffix)
        if self._options.deferred:
            # As copies: the run may go on changing the memory.
            return self._later(name, number, [bytes(part) for part in parts])
        try:
            return self._written(name, parts)
        except NoRoom as error:
            return _lost_file(error)
        except unsignalled(OSError) as error:
            if placement.lost is not None:
                placement.lost(error)
                return _lost_file(error)
            if error.errno in FULL:
                raise
            self._fault(name, error)
            return _lost_file(error)

    def _written(self, name: str, parts: Sequence[Buffer]) -> bytes:
        """Write a file; return the members that say so. Raises OSError."""
        crc = self._write(name, parts, self._folder)
        # A safe name has nothing to escape.
        return b',"data_name":"%b","data_crc32":"%08x"' % (name.encode(), crc)

    def _later(self, name: str, number: int, parts: Sequence[Buffer]) -> bytes:
        with self._lock:
            if self._queue is None:
                self._queue = FileQueue(self._options.bound)
            queue = self._queue
        number = number or next(self._numbers)

        def write() -> None:
            try:
                filler = self._written(name, parts)
            except NoRoom as error:
                filler = _lost_file(error)
            except unsignalled(Exception) as error:
                filler = _lost_file(error)
                self._fault(name, error)
            self._append(events.fill([(number, filler)]))

        queue.put(write, byte_count(parts))
        return hole("f", number)

    def _fault(self, name: str, error: Exception) -> None:
        self._coverage.add("failed", "tensor files")
        self._append(events.fault(f"writing {name}", error_text(error)))

    def flush(self) -> None:
        """Wait until every file that was begun is on disk or has failed."""
        if self._queue is not None:
            self._queue.flush()

    def close(self) -> None:
        """Flush, and end the writing thread if there is one."""
        self.flush()
        if self._queue is not None:
            self._queue.close()
            self._queue = None
        self._store.close()
        self._folder.close()


def _lost_file(error: Exception) -> bytes:
    """Return the members of a tensor object that say why it has no file."""
    why = str(error) if isinstance(error, NoRoom) else error_text(error)
    if isinstance(error, OSError) and error.errno is not None:
        why = f"[Errno {error.errno}] {error.strerror}"
    return members({"lost": f"tensor file: {why}"})
