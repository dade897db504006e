"""Split JSON text into the floats under some keys and the rest, by a C library that is built from `floats.c`."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def _loaded(place: Path) -> Any:
    try:
        function = ctypes.CDLL(str(place)).probe_fast_take_floats
    except OSError:
        return None
    text, size, room = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
    function.argtypes, function.restype = (text, size, text, size, room, room, size * 2), None
    return function


_take = _loaded(Path(__file__).with_name("floats.so"))
#: Buffers in which the library writes: making one, all of it zero, takes a quarter of the time. Who takes a buffer
#: out has it alone.
_rooms: list[Any] = []


def take_floats(text: bytes, keys: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """Return a text without some floats, and the floats joined by commas; None where the library is missing.

    Where all keys follow one another, each with a float, one zero byte takes the place of them all in the text.

    keys: as they stand in the text, such as ``"Max":`` and ``,"Min":``. The first has two bytes or more.
    """
    if _take is None:
        return None
    size = len(text)
    try:
        room = _rooms.pop()
    except IndexError:
        room = ctypes.create_string_buffer(0)
    if len(room) < 2 * size:
        room = ctypes.create_string_buffer(2 * size)
    rest = ctypes.addressof(room)
    lengths = (ctypes.c_size_t * 2)()
    _take(text, size, b"".join(key + b"\0" for key in keys), len(keys), rest, rest + size, lengths)
    found = ctypes.string_at(rest, lengths[0]), ctypes.string_at(rest + size, max(0, lengths[1] - 1))
    _rooms.append(room)
    return found
