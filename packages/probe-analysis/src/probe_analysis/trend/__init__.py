"""Follow one quantity over steps, layers and ranks, and put what changed most first."""

from __future__ import annotations

from .picture import draw
from .series import Series, magnitude
from .sources import QUANTITIES, STATISTICS
from .sparkline import sparkline
from .trend import Trend, trend

__all__ = [
    "QUANTITIES",
    "STATISTICS",
    "Series",
    "Trend",
    "draw",
    "magnitude",
    "sparkline",
    "trend",
]
