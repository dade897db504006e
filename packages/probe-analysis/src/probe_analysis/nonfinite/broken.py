"""Say what in a tensor, or in an argument, is not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from probe_format.jsonio import number

__all__ = ["broken", "kinds_asked_for", "kinds_of"]

_COUNTS = {"nan_count": "NaN", "posinf_count": "+Inf", "neginf_count": "-Inf"}
_WORDS = {"NaN": "NaN", "Infinity": "+Inf", "-Infinity": "-Inf"}
_NONE: frozenset[str] = frozenset()


def kinds_of(tensor: Mapping[str, Any]) -> frozenset[str]:
    """Return which of ``NaN``, ``+Inf`` and ``-Inf`` are among a tensor's elements, as far as its statistics tell.

    A norm alone may overflow in the dtype that msprobe computes it in, so only the elements' extremes count.
    """
    high, low = tensor.get("Max"), tensor.get("Min")
    if _is_finite(high) and _is_finite(low):
        return _NONE
    counted = frozenset(word for key, word in _COUNTS.items() if tensor.get(key))
    if counted:
        return counted
    return frozenset(word for x in (high, low) if (word := _word(x)))


def broken(tensor: Mapping[str, Any]) -> str:
    """Return in words what is not finite (``3 NaN, 1 +Inf of 64``); empty when all elements are, or it is not known."""
    kinds = kinds_of(tensor)
    counts = [f"{tensor[key]} {word}" for key, word in _COUNTS.items() if tensor.get(key)]
    if kinds and counts:
        return f"{', '.join(counts)} of {math.prod(tensor['shape'])}"
    return ", ".join(sorted(kinds))


def kinds_asked_for(value: Any) -> frozenset[str]:
    """Return what an argument that is not a tensor asks for: the ``-Inf`` of ``masked_fill(mask, float('-inf'))``."""
    given = value.get("value") if isinstance(value, dict) else None
    return frozenset((_WORDS[given],)) if isinstance(given, str) and given in _WORDS else _NONE


def _is_finite(x: Any) -> bool:
    return x is None or type(x) is bool or (type(x) is int) or (type(x) is float and math.isfinite(x))


def _word(x: Any) -> str:
    found = number(x)
    if not isinstance(found, float) or math.isfinite(found):
        return ""
    return "NaN" if found != found else "+Inf" if found > 0 else "-Inf"
