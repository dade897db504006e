"""The only place that knows orjson.

orjson writes NaN as ``null`` without a word and refuses integers over 64 bits; msprobe writes bare ``NaN``
tokens, which orjson refuses to read. Callers turn non-finite floats into strings with `finite` before they
get here; `dumps` handles big integers, `loads` handles the bare tokens.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

__all__ = ["dumps", "finite", "fragment", "loads", "number"]


def finite(x: float) -> float | str:
    """``x``, or the string that stands for it in strict JSON (spec/values.md)."""
    if math.isfinite(x):
        return x
    return "NaN" if x != x else ("Infinity" if x > 0 else "-Infinity")


_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def number(x: Any) -> Any:
    """The number that a JSON statistic stands for: the inverse of `finite`; other values pass through."""
    return _WORDS.get(x, x) if isinstance(x, str) else x


def dumps(value: Any) -> bytes:
    """Strict, compact JSON in UTF-8. Non-finite floats are an error of the caller (ValueError)."""
    try:
        return orjson.dumps(value)
    except TypeError:
        # Integers over 64 bits, lone surrogates: rare, so the slow standard library is good enough.
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def fragment(value: Any) -> Any:
    """``value`` as finished JSON, which `dumps` puts in as it is; one small object instead of a tree of them."""
    return orjson.Fragment(dumps(value))


def loads(data: bytes | str) -> Any:
    """Parse JSON, with msprobe's bare NaN, Infinity and -Infinity tokens accepted.

    Raises ValueError (json.JSONDecodeError) on anything else.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    try:
        if _LONG.search(raw):  # orjson turns integers over 64 bits into floats without a word
            return json.loads(raw)
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return json.loads(raw)
    except RecursionError as e:
        raise ValueError("nested too deeply") from e


_LONG = re.compile(rb"(?<![\d.])-?\d{19,}")
