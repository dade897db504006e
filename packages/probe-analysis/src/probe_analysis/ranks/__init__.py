"""Find what ranks that should agree do not agree on: weights, reduced gradients, replicated tensors, collectives."""

from __future__ import annotations

from .disagreement import WHY, Disagreement, ranks_text
from .ranks import Ranks, ranks
from .stop import Stop

__all__ = ["WHY", "Disagreement", "Ranks", "Stop", "ranks", "ranks_text"]
