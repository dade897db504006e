"""Watch a run while it goes on: which of its steps stay, which of them are bad, and the few numbers of every step."""

from __future__ import annotations

from .ring import Ring
from .row import Columns, Norms, WatchedRow
from .step_seen import StepSeen
from .trigger import Trigger
from .triggers import Triggers

__all__ = ["Columns", "Norms", "Ring", "StepSeen", "Trigger", "Triggers", "WatchedRow"]
