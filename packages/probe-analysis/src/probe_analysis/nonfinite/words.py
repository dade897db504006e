"""Say in words what in a tensor is not finite, and of how many elements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from probe_format.schema import non_finite

__all__ = ["broken", "meant"]


def broken(tensor: Mapping[str, Any]) -> str:
    """Return in words what is not finite (``3 NaN, 1 +Inf of 64``); empty when all elements are, or it is not known."""
    words = non_finite(tensor)
    return f"{words} of {math.prod(tensor['shape'])}" if words[:1].isdigit() else words


def meant(counts: Mapping[str, int]) -> str:
    """Return in words, in brackets, how many records hold what is not finite where that is no finding.

    counts: as in `NonFinite`.
    """
    records = sum(counts.values())
    what = f" ({records} records hold infinities that were asked for, or what no call used)"
    return what if records else ""
