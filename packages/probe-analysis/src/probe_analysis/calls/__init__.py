"""Read the calls of a run: what was called, in which order, inside of which module, with which values."""

from __future__ import annotations

from probe_format.schema import Parts, Side, Value

from .call import GRADIENTS, AtCall, Call, ended_inside, is_own
from .run import Progress, Run, Source, runs_of

__all__ = [
    "GRADIENTS",
    "AtCall",
    "Call",
    "Parts",
    "Progress",
    "Run",
    "Side",
    "Source",
    "Value",
    "ended_inside",
    "is_own",
    "runs_of",
]
