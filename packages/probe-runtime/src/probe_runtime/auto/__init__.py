"""Find the model and the steps of a run whose script says nothing of Probe."""

from __future__ import annotations

from .activation import named_by_job
from .function_steps import FunctionSteps
from .scene import Scene
from .steps import AutoSteps

__all__ = ["AutoSteps", "FunctionSteps", "Scene", "named_by_job"]
