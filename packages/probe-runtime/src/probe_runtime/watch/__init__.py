"""Watch a run while it goes on: how much it writes, which of its steps stay, and which of them are bad."""

from __future__ import annotations

from .budget import Allowance, Budget
from .ring import Ring
from .step_seen import StepSeen
from .trigger import Trigger
from .triggers import Triggers

__all__ = ["Allowance", "Budget", "Ring", "StepSeen", "Trigger", "Triggers"]
