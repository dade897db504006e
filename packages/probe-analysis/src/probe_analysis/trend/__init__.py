"""Follow one quantity over steps, layers and ranks, and put what changed most first."""

from __future__ import annotations

from probe_analysis.trend.picture import sparkline

from .picture import draw
from .series import Series, magnitude
from .sources import QUANTITIES, STATISTICS
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
