"""Watch a run while it goes on: which of its steps stay, and which of them are bad."""

from __future__ import annotations

from .ring import Ring
from .step_seen import StepSeen
from .trigger import Trigger
from .triggers import Triggers

__all__ = ["Ring", "StepSeen", "Trigger", "Triggers"]
