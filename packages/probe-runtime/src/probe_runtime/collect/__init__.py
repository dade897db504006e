"""Calls and gradients as journal events: collector, recorder, gradient taps, recompute, collectives."""

from __future__ import annotations

from . import guard
from .call import Call
from .collectives import Collectives, PendingWork
from .collector import Collector, Target
from .event_stream import Stream
from .gradient_tap import Autograd, GradientTap
from .gradients import Emit, Gradients
from .guard import guarded, noted, sheltered
from .module_table import TrackedModule, TrackedParameter, kind_of, tracked_parameters
from .plan import Plan, header_of, plan_of
from .recompute import Segment, SegmentState
from .recorder import Recorder

__all__ = [
    "Autograd",
    "Call",
    "Collectives",
    "Collector",
    "Emit",
    "GradientTap",
    "Gradients",
    "TrackedModule",
    "TrackedParameter",
    "PendingWork",
    "Plan",
    "Recorder",
    "Segment",
    "SegmentState",
    "Stream",
    "Target",
    "guard",
    "guarded",
    "header_of",
    "kind_of",
    "noted",
    "tracked_parameters",
    "plan_of",
    "sheltered",
]
