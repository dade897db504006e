"""Find the call that made the first number that is not finite, and the numbers that are close to it."""

from __future__ import annotations

from probe_analysis.nonfinite.watch import Risk

from .first import Finding, NonFinite, broken, first_non_finite, non_finite_in
from .watch import Watch

__all__ = ["Finding", "NonFinite", "Risk", "Watch", "broken", "first_non_finite", "non_finite_in"]
