"""Find which call of one run is which call of another, by name and, where names differ, by structure."""

from __future__ import annotations

from .alignment import Alignment, Pair, align
from .mapping import Mapping, load_mapping, suggest_mapping
from .sequence import aligned
from .tree import plain_path

__all__ = [
    "Alignment",
    "Mapping",
    "Pair",
    "align",
    "aligned",
    "load_mapping",
    "plain_path",
    "suggest_mapping",
]
