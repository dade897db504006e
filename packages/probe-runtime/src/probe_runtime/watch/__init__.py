"""Watch a run: how much it writes, which steps stay, which of them are bad, and the few numbers of every step."""

from .budget import Allowance, Budget
from .outputs import tensors_in
from .parameters import ParameterNames
from .ring import Ring
from .row import Columns, Norms, WatchedRow
from .step_seen import StepSeen
from .trigger_file import Trigger
from .triggers import Triggers

__all__ = [
    "Allowance", "Budget", "Columns", "Norms", "ParameterNames", "Ring", "StepSeen", "Trigger", "Triggers",
    "WatchedRow", "tensors_in",
]  # fmt: skip
