"""Read the calls of a run: what was called, in which order, inside of which module, with which values."""

from __future__ import annotations

from probe_format.schema import Parts, Side, Value

from .call import Call, ended_inside
from .run import Progress, Run, Source, is_own, runs_of

__all__ = ["Call", "Parts", "Progress", "Run", "Side", "Source", "Value", "ended_inside", "is_own", "runs_of"]
