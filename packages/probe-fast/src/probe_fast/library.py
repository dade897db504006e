"""Measure numbers in memory (extremes, mean, norm, counts) by the C library `numbers.c`, which the build compiles."""

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_KINDS = "float32 float64 float16 bfloat16 codes bool int8 int16 int32 int64 uint8 uint16 uint32 uint64"
#: What the library calls each kind of elements. ``codes``: of 8 bits, with a table of what they mean.
KINDS = {name: number for number, name in enumerate(_KINDS.split())}
#: Up to so many elements the interpreter's lock is kept, which costs less than to give it away.
FEW = 1 << 15
#: From so many elements on a thread takes less time to begin than it saves.
MANY = 1 << 20
_ZEROS, _SKETCH, _UNSURE = 1, 2, 2
#: What the library writes: the fields of `Measured`.
ROW = struct.Struct("4d6q16d")


class Measured(NamedTuple):
    """Hold the numbers of some elements.

    max, min: of the finite elements, where not all are; -inf and inf if none is.
    mean, norm: of all elements, where they are finite.
    top, bottom: the extremes of integers of 64 bits; of uint64 as the signed integers of their bits.
    nan, above, below: how many are NaN, infinity, minus infinity.
    zeros: how many are zero, if that was asked for.
    sketch: sixteen sums, if they were asked for.
    """

    max: float
    min: float
    mean: float
    norm: float
    top: int
    bottom: int
    nan: int
    above: int
    below: int
    zeros: int
    sketch: tuple[float, ...]

    @property
    def broken(self) -> bool:
        """Return whether not all elements are finite."""
        return bool(self.nan or self.above or self.below)


def _loaded(place: Path) -> tuple[str, Any, Any]:
    """Return `WAY`, and the library's function twice: one keeps the interpreter's lock, the other releases it."""
    try:
        keeps, gives = ctypes.PyDLL(str(place)), ctypes.CDLL(str(place))
    except OSError:
        return "", None, None
    way = ("plain", "AVX2", "AVX-512")[gives.probe_fast_best()]
    return way, keeps.probe_fast_numbers, gives.probe_fast_numbers


_way, _few, _many = _loaded(Path(__file__).with_name("numbers.so"))
#: How this processor computes: ``AVX-512``, ``AVX2`` or ``plain`` (on aarch64 that is NEON); empty without the library.
WAY = _way  # by itself, as the API reference lacks names that are unpacked

_ASKED = struct.Struct("PNP4i")
_ask, _ask_four, _four = _ASKED.pack_into, struct.Struct("PNPi").pack_into, struct.Struct("4d").unpack_from
_ANSWER = _ASKED.size
_Room = ctypes.c_char * (_ANSWER + ROW.size)
#: Buffers in which the library reads a question and writes its answer. Who takes a buffer out has it alone: a thread,
#: or a signal's handler. Only `four` uses them: each buffer asks for four numbers, by one thread.
_rooms: list[tuple[Any, Any]] = []


def _room() -> tuple[Any, Any]:
    room = _Room()
    _ask(room, 0, 0, 0, 0, 0, 0, 1, 0)
    return room, ctypes.byref(room)


def four(
    address: int, count: int, kind: str, threads: Callable[[], int] | None = None
) -> tuple[float, float, float, float] | None:
    """Return the max, min, mean and norm of elements that lie one after the other, one or more.

    Returns None where they are not all finite, or their squares are beyond float64.

    kind: of `KINDS`, but for ``codes``. threads: as in `numbers`.
    """
    if count > FEW:
        of_many = numbers(address, count, kind, threads=threads)
        return None if of_many is None or of_many.broken else of_many[:4]
    # Written and read by struct: a ctypes argument takes 60 ns, and a ctypes array 400.
    try:
        room = _rooms.pop()
    except IndexError:
        room = _room()
    place, pointer = room
    _ask_four(place, 0, address, count, 0, KINDS[kind])
    found = None if _few(pointer) else _four(place, _ANSWER)
    _rooms.append(room)
    return found


def numbers(
    address: int,
    count: int,
    kind: str,
    *,
    table: int | None = None,
    threads: Callable[[], int] | None = None,
    zero_count: bool = False,
    sketch: bool = False,
) -> Measured | None:
    """Return the numbers of elements that lie one after the other; None where only numpy can compute them.

    kind: of `KINDS`.
    table: address of 256 float32, of ``codes`` alone.
    threads: returns how many threads may compute; called where there are many elements. No number depends on it.
    zero_count: whether zeros are counted.
    sketch: whether the sums of the sketch are made. The elements are then in C order.
    """
    want = zero_count * _ZEROS | sketch * _SKETCH
    used = threads() if threads and count >= MANY else 1
    room, pointer = _room()
    _ask(room, 0, address, count, table or 0, KINDS[kind], want, used, 0)
    unsure = (_few if count <= FEW else _many)(pointer) == _UNSURE
    values = ROW.unpack_from(room, _ANSWER)
    return None if unsure else Measured._make((*values[:10], values[10:]))
