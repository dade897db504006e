"""Say what a dump would write before the run, from a pass over tensors without numbers."""

from .planner import plan
from .stand_ins import without_memory

__all__ = ["plan", "without_memory"]
