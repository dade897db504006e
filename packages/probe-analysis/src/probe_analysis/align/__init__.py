"""Find which call of one run is which call of another, by name and, where names differ, by structure."""

from __future__ import annotations

from .alignment import Alignment, Pair, align
from .mapping import Mapping, load_mapping, suggest_mapping

__all__ = ["Alignment", "Mapping", "Pair", "align", "load_mapping", "suggest_mapping"]
