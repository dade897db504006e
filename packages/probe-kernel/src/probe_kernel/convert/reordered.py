"""Write a large tensor of one file to another file, with its elements in another order, without a copy of the whole.

The file is read piece by piece, and not mapped: one that is cut short meanwhile would end the process.
"""

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen
from probe_format.errors import DamagedError
from probe_format.safe_files import Folder, naming

from probe_kernel.files.tensor_layouts import Ordered

#: Size in bytes from which a copy of the whole costs more than writing piece by piece.
LARGE = 8 << 20
#: Sizes of a piece in bytes. A piece of the first size stays in the cache of a core, is put in order and written from
#: there. The second size is for elements that lie far apart: a larger piece has larger parts.
_PIECES = 1 << 20, 8 << 20
#: Size in bytes from which parts of a piece that lie far apart are read one by one.
_PART = 512
_WORKERS = 2
#: The place of a piece in the view: a number for each outer dimension, and a slice of the next one.
Index = tuple[Any, ...]


@frozen
class Reordered:
    """Hold what is to be written into a file: ``head``, and after it the elements of another file in another order.

    order: the elements in C order; its view is a view of ``base``.
    base: an array whose memory is not read: it only gives the view its shape and strides.
    source: the file that has the elements of the base.
    offset: where they begin in it.
    """

    head: bytes
    order: Ordered
    base: npt.NDArray[Any]
    source: Path
    offset: int

    @property
    def is_close(self) -> bool:
        """Return whether the view is of the base, and the elements of a piece lie near each other or in large parts."""
        view = self.order.view
        return np.may_share_memory(view, self.base) and all(_is_close(view[at]) for at in self._pieces()[:1])

    def _pieces(self) -> list[Index]:
        """Return the places of the pieces in the view: small ones, where their elements lie near each other."""
        found: list[Index] = []
        for size in _PIECES:
            found = list(_places(self.order.view.shape, size // self.base.itemsize))
            if all(_is_near(self.order.view[index]) for index in found[:1]):
                break
        return found

    def write(self, path: Path) -> None:
        """Write a file; it replaces an earlier one once it is whole. Raises OSError when it cannot be written."""
        pieces = self._pieces()
        with (
            self.source.open("rb") as given,
            closing(Folder(path.parent)) as folder,
            folder.replacing(path.name) as fd,
            ThreadPoolExecutor(_WORKERS, "probe-reorder") as pool,
        ):
            _write_at(fd, memoryview(self.head), 0)
            parts = [pieces[i::_WORKERS] for i in range(_WORKERS)]
            for done in [pool.submit(self._write, given.fileno(), fd, part) for part in parts]:
                done.result()

    def _read(self, fd: int, piece: npt.NDArray[Any], room: bytearray) -> npt.NDArray[Any]:
        """Return the elements of a piece of the view. Raises DamagedError when the file is cut short.

        room: takes the bytes; it is made longer where it is too short.
        """
        axis = _apart(piece)
        if axis is not None:
            parts = [self._read(fd, part, room).copy() for part in np.moveaxis(piece, axis, 0)]
            return np.stack(parts, axis)
        extent = _extent(piece)
        if len(room) < extent:
            room.extend(bytes(extent - len(room)))
        begin = self.offset + piece.__array_interface__["data"][0] - self.base.__array_interface__["data"][0]
        done = 0
        while done < extent:
            with naming(self.source):
                got = os.preadv(fd, [memoryview(room)[done:extent]], begin + done)
            if not got:
                raise DamagedError(f"{self.source} is cut short: it ends within its values.")
            done += got
        return np.ndarray(piece.shape, piece.dtype, room, strides=piece.strides)

    def _write(self, given: int, fd: int, pieces: Sequence[Index]) -> None:
        """Write these pieces of the view. numpy's copy and the system's calls let another thread run."""
        room = np.empty(0, self.base.dtype)
        raw_room = bytearray()
        for index in pieces:
            padded, kept, first = self._place(index)
            if 0 in kept:
                continue
            piece = self._read(given, self.order.view[index], raw_room)
            if kept != padded:
                piece = piece.reshape(padded)[tuple(map(slice, kept))]
            if room.size < piece.size:
                room = np.empty(piece.size, room.dtype)
            flat = room[: piece.size]
            np.copyto(flat.reshape(piece.shape), piece)
            raw: Any = flat.view(np.uint8)
            _write_at(fd, memoryview(raw), len(self.head) + first * room.itemsize)

    def _place(self, index: Index) -> tuple[list[int], list[int], int]:
        """Return the shape of a piece by axes, that without its padding, and the number of its first element."""
        sizes = self.order.view.shape
        given = [(i, 1) if isinstance(i, int) else (i.start, i.stop - i.start) for i in index]
        parts = zip(sizes, [*given, *((0, size) for size in sizes[len(given) :])], strict=True)
        padded, kept, first = [], [], 0
        for several, size in zip(self.order.parts, self.order.cut, strict=True):
            begin, count = 0, 1
            for whole, (start, some) in islice(parts, several):
                begin, count = begin * whole + start, count * some
            padded.append(count)
            kept.append(max(0, min(count, size - begin)))
            first = first * size + begin
        return padded, kept, first


def _places(shape: tuple[int, ...], most: int) -> Iterator[Index]:
    if not math.prod(shape):
        return
    axis, rest = 0, math.prod(shape[1:])
    while axis + 1 < len(shape) and rest > most:
        axis += 1
        rest = math.prod(shape[axis + 1 :])
    step = max(1, most // rest)
    for outer in product(*map(range, shape[:axis])):
        for start in range(0, shape[axis], step):
            yield *outer, slice(start, min(start + step, shape[axis]))


def _is_close(piece: npt.NDArray[Any]) -> bool:
    axis = _apart(piece)
    return _is_near(piece) if axis is None else _is_close(np.moveaxis(piece, axis, 0)[0])


def _apart(piece: npt.NDArray[Any]) -> int | None:
    """Return the axis along which large parts of a piece lie far from each other; None where none do."""
    if _is_near(piece):
        return None
    axis = max(range(piece.ndim), key=lambda i: (piece.shape[i] > 1, piece.strides[i]))
    return axis if piece.nbytes >= _PART * piece.shape[axis] else None


def _is_near(piece: npt.NDArray[Any]) -> bool:
    return _extent(piece) <= 2 * piece.nbytes


def _extent(piece: npt.NDArray[Any]) -> int:
    """Return how many bytes of memory lie from the first element of a piece to the end of its last."""
    if not piece.size:
        return 0
    steps = zip(piece.shape, piece.strides, strict=True)
    return int(piece.itemsize + sum((n - 1) * step for n, step in steps))


def _write_at(fd: int, raw: memoryview, offset: int) -> None:
    while raw:
        done = os.pwrite(fd, raw, offset)
        raw, offset = raw[done:], offset + done
