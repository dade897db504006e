"""Follow one quantity over steps, layers and ranks, and put what changed most first."""

from __future__ import annotations

from .picture import draw
from .series import Point, Series, magnitude
from .sources import QUANTITIES, STATISTICS, Quantity, Statistic
from .sparkline import sparkline
from .trend import Trend, trend

__all__ = [
    "QUANTITIES",
    "STATISTICS",
    "Point",
    "Quantity",
    "Series",
    "Statistic",
    "Trend",
    "draw",
    "magnitude",
    "sparkline",
    "trend",
]
