"""Say what a dump would write before the run, from a step that leaves the net as it was."""

from .planner import plan

__all__ = ["plan"]
