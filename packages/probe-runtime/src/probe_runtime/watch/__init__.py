"""Watch a run while it goes on: which of its steps stay."""

from __future__ import annotations

from .ring import Ring

__all__ = ["Ring"]
