"""Find the call that made the first number that is not finite, and the numbers that are close to it."""

from __future__ import annotations

from .broken import broken
from .first import Finding, NonFinite, first_non_finite
from .risks import Risk, risks_of

__all__ = ["Finding", "NonFinite", "Risk", "broken", "first_non_finite", "risks_of"]
