"""Watch a run while it goes on: which of its steps stay, and the few numbers of every step."""

from __future__ import annotations

from .parameters import ParameterNames
from .ring import Ring
from .row import Columns, Norms, WatchedRow

__all__ = ["Columns", "Norms", "ParameterNames", "Ring", "WatchedRow"]
