"""Select what a configuration asks for: steps, ranks, names, and parts of records."""

from __future__ import annotations

from .filters import NameFilter, RankFilter, StepFilter

__all__ = ["NameFilter", "RankFilter", "StepFilter"]
