"""Turn calls and gradients into journal events: collector, recorder, gradient taps, recompute, collectives."""

from . import guard
from .backward_records import GradientTap
from .calls import Call
from .collectives import Collectives, PendingWork
from .collector import Collector
from .event_stream import EventStream
from .gradients import UNTOLD, Autograd, Emit, Gradients, GradientTexts, untold
from .guard import faults_reported, guarded, sheltered
from .module_table import (
    AnyModuleTable,
    TrackedModule,
    TrackedParameter,
    kind_of,
    models_of,
    tracked_parameters,
)
from .plan import Plan, header_of, plan_of
from .recompute import Segment, SegmentState
from .recorder import Recorder, Target
from .thread_state import other_threads
from .walk import Part, Walk

__all__ = [
    "UNTOLD", "AnyModuleTable", "Autograd", "Call", "Collectives", "Collector", "Emit", "EventStream",
    "GradientTap", "GradientTexts", "Gradients", "Part", "PendingWork", "Plan", "Recorder", "Segment",
    "SegmentState", "Target", "TrackedModule", "TrackedParameter", "Walk", "faults_reported", "guard",
    "guarded", "header_of", "kind_of", "models_of", "other_threads", "plan_of", "sheltered", "tracked_parameters",
    "untold",
]  # fmt: skip
