"""Write the elements of a large array in another order than they lie in, without a copy of the whole."""

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
from probe_format.safe_files import FILE_MODE

__all__ = ["LARGE", "Reordered"]

#: Size in bytes from which a copy of the whole costs more than writing piece by piece.
LARGE = 8 << 20
#: Pieces stay in the cache of a core: they are put in order there, and written from there.
_PIECE = 1 << 20
_WORKERS = 2


@frozen
class Reordered:
    """The content of a file: some bytes, and after them the elements of a view in C order.

    head: the bytes.
    view: the elements, as they lie in memory.
    """

    head: bytes
    view: npt.NDArray[Any]

    def write(self, path: Path) -> None:
        """Write a new file; an existing one is replaced. Raises OSError when it cannot; then there is no file."""
        path.unlink(missing_ok=True)  # not truncated: other names may be linked to the old content
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        try:
            _write_at(fd, memoryview(self.head), 0)
            pieces = list(_pieces(self.view.shape, self.view.itemsize))
            with ThreadPoolExecutor(_WORKERS, "probe-reorder") as pool:
                parts = [pieces[i::_WORKERS] for i in range(_WORKERS)]
                for done in [pool.submit(self._write, fd, part) for part in parts]:
                    done.result()
        except BaseException:
            path.unlink()  # half a file is useless, and a full disk needs the space
            raise
        finally:
            os.close(fd)

    def _write(self, fd: int, pieces: Sequence[tuple[tuple[Any, ...], int]]) -> None:
        """Write these pieces of the view. numpy's copy and the system's write let another thread run."""
        room = np.empty(0, self.view.dtype)
        for index, first in pieces:
            piece = self.view[index]
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


def _write_at(fd: int, raw: memoryview, offset: int) -> None:
    while raw:
        done = os.pwrite(fd, raw, offset)
        raw, offset = raw[done:], offset + done
