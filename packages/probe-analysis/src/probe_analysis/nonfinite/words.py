"""Say in words what in a tensor is not finite, and of how many elements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from probe_format.schema import non_finite

__all__ = ["broken"]


def broken(tensor: Mapping[str, Any]) -> str:
    """Return in words what is not finite (``3 NaN, 1 +Inf of 64``); empty when all elements are, or it is not known."""
    words = non_finite(tensor)
    return f"{words} of {math.prod(tensor['shape'])}" if words[:1].isdigit() else words
