"""Say what a dump would write before the run, from a step that leaves the net as it was."""

from __future__ import annotations

from .planner import plan

__all__ = ["plan"]
