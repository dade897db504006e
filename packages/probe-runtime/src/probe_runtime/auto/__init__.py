"""Find the model and the steps of a run whose script says nothing of Probe."""

from __future__ import annotations

from .scene import Scene
from .steps import AutoSteps

__all__ = ["AutoSteps", "Scene"]
