"""Split JSON text into the floats under some keys and the rest: by `probe_fast` (extra ``fast``), or by a pattern."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

_native: Callable[[bytes, Sequence[bytes]], tuple[bytes, bytes] | None] | None
try:
    from probe_fast import take_floats as _native
except ImportError:
    _native = None


def take_floats(text: bytes, keys: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return a text without some floats, and the floats joined by commas.

    Where all keys follow one another, each with a float, one zero byte takes the place of them all in the text. A
    number with neither point nor exponent is no float.

    keys: as they stand in the text, such as ``"Max":`` and ``,"Min":``. The first has two bytes or more.
    """
    found = _native(text, keys) if _native else None
    return found or by_pattern(text, keys)


def by_pattern(text: bytes, keys: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return the same as `take_floats`, without the library."""
    pieces = _pattern(tuple(keys)).split(text)
    rest = pieces[:: len(keys) + 1]
    del pieces[:: len(keys) + 1]
    return b"\0".join(rest), b",".join(pieces)


@lru_cache(maxsize=8)
def _pattern(keys: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(b"".join(re.escape(key) + rb"(-?[0-9]++[.eE][-+0-9eE]*+)" for key in keys))
