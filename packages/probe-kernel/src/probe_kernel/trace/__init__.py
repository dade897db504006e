"""From a line of the script to its operators and kernels, and back."""

from __future__ import annotations

from .find_line import Hit, Line, find, parse_line
from .match import Contradiction, How, Match, agrees, contradictions, match, stem

__all__ = [
    "Contradiction",
    "Hit",
    "How",
    "Line",
    "Match",
    "agrees",
    "contradictions",
    "find",
    "match",
    "parse_line",
    "stem",
]
