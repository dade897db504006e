"""Say what in a tensor, or in an argument, is not finite (spec/statistics.md, What is not finite)."""

import math
from collections.abc import Mapping
from typing import Any

from probe_format.excerpts import text
from probe_format.jsonio import number
from probe_format.statistics import NOT_FINITE

_NONE: frozenset[str] = frozenset()


def kinds_of(tensor: Mapping[str, Any]) -> frozenset[str]:
    """Return which of ``NaN``, ``+Inf`` and ``-Inf`` are among a tensor's elements, as far as its statistics tell.

    The counts say it and, without any, Max and Min. msprobe's Norm and Mean do not: they overflow in the dtype.
    """
    get = tensor.get
    if get("nan_count") or get("posinf_count") or get("neginf_count"):
        return frozenset(word for key, word in NOT_FINITE.items() if get(key))
    high, low = get("Max"), get("Min")
    if type(high) is float and type(low) is float and high - high + low - low == 0.0:
        return _NONE
    return frozenset(word for x in (high, low) if (word := _word(x)))


def non_finite(tensor: Mapping[str, Any]) -> str:
    """Return in words what is not finite (``3 NaN, 1 +Inf``); empty when all elements are finite, or it is unknown."""
    kinds = kinds_of(tensor)
    if not kinds:
        return ""
    counted = ((f"{text(tensor[key])} " if tensor.get(key) else "", word) for key, word in NOT_FINITE.items())
    return ", ".join(count + word for count, word in counted if word in kinds)


def broken(tensor: Mapping[str, Any]) -> str:
    """Return in words what is not finite (``3 NaN, 1 +Inf of 64``); empty when all elements are, or it is not known."""
    words = non_finite(tensor)
    return f"{words} of {math.prod(tensor['shape'])}" if words[:1].isdigit() else words


def kinds_asked_for(value: Any) -> frozenset[str]:
    """Return what an argument that is not a tensor asks for: the ``-Inf`` of ``masked_fill(mask, float('-inf'))``."""
    if isinstance(value, dict):
        value = None if value.get("type") == "str" else value.get("value")
    elif isinstance(value, str):  # a text that a user wrote, as every text that is not encoded
        return _NONE
    word = _word(value)
    return frozenset((word,)) if word else _NONE


def _word(x: Any) -> str:
    found = number(x)
    if not isinstance(found, float) or math.isfinite(found):
        return ""
    return "NaN" if found != found else "+Inf" if found > 0 else "-Inf"
