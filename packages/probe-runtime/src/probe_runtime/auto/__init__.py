"""Find the model and the steps of a run whose script says nothing of Probe."""

from .activation import named_by_job
from .containment import Containment
from .scene import Scene
from .search import search
from .steps import AutoSteps

__all__ = ["AutoSteps", "Containment", "Scene", "named_by_job", "search"]
