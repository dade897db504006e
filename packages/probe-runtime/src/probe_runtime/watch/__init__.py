"""Watch a run while it goes on: which of its steps stay, and how much it writes."""

from __future__ import annotations

from .budget import Allowance, Budget
from .ring import Ring

__all__ = ["Allowance", "Budget", "Ring"]
