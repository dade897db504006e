"""Read the calls of a run: what was called, in which order, inside of which module, with which values."""

from __future__ import annotations

from probe_format.schema import Parts, Side, Value, parts_of

from .call import Call, Kind, ended_inside
from .run import Run, is_own, runs_of

__all__ = ["Call", "Kind", "Parts", "Run", "Side", "Value", "ended_inside", "is_own", "parts_of", "runs_of"]
