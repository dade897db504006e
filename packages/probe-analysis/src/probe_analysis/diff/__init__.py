"""Compare two runs call by call, and name the first call that made a difference."""

from __future__ import annotations

from .call_diff import CallDiff
from .diff import Diff, RunDiff, diff, diff_runs
from .verdict import Verdict

__all__ = ["CallDiff", "Diff", "RunDiff", "Verdict", "diff", "diff_runs"]
