"""Read and write JSON with orjson, which no other module imports.

orjson silently writes NaN as ``null``, refuses to write integers over 64 bits and reads them as floats;
msprobe writes bare ``NaN`` tokens, which orjson refuses to read. Callers turn non-finite floats into strings
with `finite` before they get here; `dumps` handles big integers, `loads` handles those and the bare tokens.

`inert` puts a space before what a spreadsheet takes for a formula, and `meant` takes it out again.
"""

import json
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

_FORMULA = " *[-+=@%\uff0b\uff0d\uff1d\uff20\uff05]"  # and the wide forms of these five
_BEFORE_FORMULA = re.compile(f"^(?={_FORMULA})|(?<=;)(?={_FORMULA})")
_SPACE_BEFORE_FORMULA = re.compile(f"^ (?={_FORMULA})|(?<=;) (?={_FORMULA})")


def inert(text: str) -> str:
    """Return ``text`` with a space before what a spreadsheet takes for a formula, as msprobe's compare refuses it."""
    return _BEFORE_FORMULA.sub(" ", text)


def meant(text: str) -> str:
    """Return ``text`` without the spaces that `inert` puts in."""
    return _SPACE_BEFORE_FORMULA.sub("", text)


INFINITY = "inf"
"""As msprobe's overflow_check knows it."""
MINUS_INFINITY = inert("-inf")
"""`float` passes over the space."""


def finite(x: float) -> float | str:
    """Return ``x``, or the string that replaces it in strict JSON (spec/values.md)."""
    if math.isfinite(x):
        return x
    return "NaN" if x != x else (INFINITY if x > 0 else MINUS_INFINITY)


_WORDS = {"NaN": math.nan, INFINITY: math.inf, MINUS_INFINITY: -math.inf}
_WORDS |= {"Infinity": math.inf, "-Infinity": -math.inf}  # as Probe wrote them before


def number(x: Any) -> Any:
    """Return the number that a JSON statistic encodes: the inverse of `finite`; other values pass through."""
    return _WORDS.get(x, x) if isinstance(x, str) else x


#: `dumps` of a value of which the caller knows that it holds no bytes, no integer over 64 bits and no lone surrogate:
#: orjson itself.
encode: Callable[[Any], bytes] = orjson.dumps


def dumps(value: Any) -> bytes:
    """Return strict, compact JSON in UTF-8. Callers convert non-finite floats with `finite`.

    value: may hold `bytes`, which are finished JSON and inserted unchanged.

    Raises TypeError or ValueError when JSON cannot express the value. A non-finite float becomes null, or
    raises ValueError.
    """
    try:
        return orjson.dumps(value, _fragment)
    except TypeError:
        # Integers over 64 bits and lone surrogates are rare, so the slow standard library is good enough.
        try:
            text = json.dumps(
                value, allow_nan=False, separators=(",", ":"), default=partial(_finished, loads)
            )
        except RecursionError:
            raise ValueError("it nests deeper than Python can follow") from None
        return text.encode("ascii")


def texts(strings: list[str]) -> list[bytes]:
    """Return the JSON of each string without its quotes: all at once, as one by one takes four times as long."""
    # Within a string each quote has a backslash before it, so that these three characters only stand between two.
    return dumps(strings)[2:-2].split(b'","') if strings else []


def members(values: dict[str, Any]) -> bytes:
    """Return what continues an object: each key and value after a comma; nothing if there are none."""
    return b"," + dumps(values)[1:-1] if values else b""


def _finished(inserted: Callable[[bytes], Any], value: Any) -> Any:
    """Return finished JSON in the form in which an encoder inserts it unchanged. Raises TypeError for other values.

    inserted: makes that form of the bytes.
    """
    if type(value) is bytes:
        return inserted(value)
    raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")


_fragment = partial(_finished, orjson.Fragment)


def loads(data: bytes | str) -> Any:
    """Parse JSON, with msprobe's bare NaN, Infinity and -Infinity tokens accepted. Integers stay exact.

    Raises ValueError (json.JSONDecodeError) when it is not JSON, or nests too deep.
    """
    try:
        if not _has_big_integer(data):
            return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("the JSON nests deeper than Python can follow") from None


#: `loads` of a text of which the caller knows that it holds no integer over 64 bits and no bare token: orjson itself.
decode: Callable[[bytes], Any] = orjson.loads


_DIGIT, _OTHER = ord("0"), ord(" ")
#: Digits become 0, characters that can precede a digit inside a number stay, all others become a blank.
_SHAPES = bytes(_DIGIT if b in b"0123456789" else b if b in b"." else _OTHER for b in range(256))
_LONG = b"0" * 19


def _has_big_integer(data: bytes | str) -> bool:
    """Return whether an integer may exceed 64 bits: 19 digits, no decimal point before them. Some 1 GB/s."""
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    if len(raw) < len(_LONG):
        return False
    shapes = raw.translate(_SHAPES)
    return b" " + _LONG in shapes or shapes.startswith(_LONG)
