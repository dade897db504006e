"""Select what a configuration asks for: steps, ranks, names, and parts of records."""

from .filters import NameFilter, RankFilter, StepFilter

__all__ = ["NameFilter", "RankFilter", "StepFilter"]
