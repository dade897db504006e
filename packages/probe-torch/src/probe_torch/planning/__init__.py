"""Say what a dump would write before the run, from a pass over tensors without numbers."""

from __future__ import annotations

from .planner import plan

__all__ = ["plan"]
