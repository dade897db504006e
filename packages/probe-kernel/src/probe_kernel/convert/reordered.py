"""Write the elements of a large array in a file in another order than they lie in, without a copy of the whole.

The file is read piece by piece, and not mapped: one that is cut short meanwhile would end the process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen
from probe_format.errors import DamagedError
from probe_format.safe_files import FILE_MODE

#: Size in bytes from which a copy of the whole costs more than writing piece by piece.
LARGE = 8 << 20
#: Pieces stay in the cache of a core: they are put in order there, and written from there.
_PIECE = 1 << 20
_WORKERS = 2


@frozen
class Reordered:
    """The content of a file: ``head``, and after it the elements of a ``view`` of ``base`` in C order.

    base: an array whose memory is not read: it only gives the view its shape and strides.
    source: the file that has the elements of the base.
    offset: where they begin in it.
    """

    head: bytes
    view: npt.NDArray[Any]
    base: npt.NDArray[Any]
    source: Path
    offset: int

    @property
    def is_close(self) -> bool:
        """Return whether the view is one of the base, and its pieces lie closely together."""
        if not np.may_share_memory(self.view, self.base):
            return False
        index, _ = next(_pieces(self.view.shape, self.view.itemsize), ((), 0))
        return bool(_extent(self.view[index]) <= 2 * self.view[index].nbytes)

    def write(self, path: Path) -> None:
        """Write a new file; an existing one is replaced. Raises OSError when it cannot; then there is no file."""
        with self.source.open("rb") as given:
            path.unlink(missing_ok=True)  # not truncated: other names may be linked to the old content
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
            try:
                _write_at(fd, memoryview(self.head), 0)
                pieces = list(_pieces(self.view.shape, self.view.itemsize))
                with ThreadPoolExecutor(_WORKERS, "probe-reorder") as pool:
                    parts = [pieces[i::_WORKERS] for i in range(_WORKERS)]
                    for done in [pool.submit(self._write, given.fileno(), fd, part) for part in parts]:
                        done.result()
            except BaseException:
                path.unlink()  # half a file is useless, and a full disk needs the space
                raise
            finally:
                os.close(fd)

    def _read(self, fd: int, piece: npt.NDArray[Any], room: bytearray) -> npt.NDArray[Any]:
        """Return the elements of a piece of the view. Raises DamagedError when the file is cut short.

        room: takes the bytes; it is made longer where it is too short.
        """
        extent = _extent(piece)
        if len(room) < extent:
            room.extend(bytes(extent - len(room)))
        begin = self.offset + piece.__array_interface__["data"][0] - self.base.__array_interface__["data"][0]
        done = 0
        while done < extent:
            got = os.preadv(fd, [memoryview(room)[done:extent]], begin + done)
            if not got:
                raise DamagedError(f"{self.source} is cut short: it ends within its values.")
            done += got
        return np.ndarray(piece.shape, piece.dtype, room, strides=piece.strides)

    def _write(self, given: int, fd: int, pieces: Sequence[tuple[tuple[Any, ...], int]]) -> None:
        """Write these pieces of the view. numpy's copy and the system's calls let another thread run."""
        room = np.empty(0, self.view.dtype)
        raw_room = bytearray()
        for index, first in pieces:
            piece = self._read(given, self.view[index], raw_room)
            if room.size < piece.size:
                room = np.empty(piece.size, self.view.dtype)
            flat = room[: piece.size]
            np.copyto(flat.reshape(piece.shape), piece)
            raw: Any = flat.view(np.uint8)
            _write_at(fd, memoryview(raw), len(self.head) + first * self.view.itemsize)


def _pieces(shape: tuple[int, ...], width: int) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yield (index, number of the first element in C order) of pieces of about the same size.

    width: of one element, in bytes.
    """
    if not math.prod(shape):
        return
    axis, rest = 0, math.prod(shape[1:])
    while axis + 1 < len(shape) and rest * width > _PIECE:
        axis += 1
        rest = math.prod(shape[axis + 1 :])
    step = max(1, _PIECE // (rest * width))
    first = 0
    for outer in product(*map(range, shape[:axis])):
        for start in range(0, shape[axis], step):
            stop = min(start + step, shape[axis])
            yield (*outer, slice(start, stop)), first
            first += (stop - start) * rest


def _extent(piece: npt.NDArray[Any]) -> int:
    """Return how many bytes of memory lie from the first element of a piece to the end of its last."""
    if not piece.size:
        return 0
    return int(
        piece.itemsize + sum((n - 1) * step for n, step in zip(piece.shape, piece.strides, strict=True))
    )


def _write_at(fd: int, raw: memoryview, offset: int) -> None:
    while raw:
        done = os.pwrite(fd, raw, offset)
        raw, offset = raw[done:], offset + done
