"""Grade what `probe diff` says of a pair whose fault is known."""

from __future__ import annotations

from pathlib import Path

import probe_analysis
from probe_analysis.calls.run import Call

from .faults import Truth

__all__ = ["GRADES", "grade_of", "graded"]

GRADES = ("named", "around it", "missed", "silent")


def graded(a: Path, b: Path, truth: Truth | None) -> tuple[str, str]:
    """Return the grade, and the sentence: ``alarm`` or ``quiet`` where nothing is wrong, else one of `GRADES`."""
    verdict = probe_analysis.diff(a, b).verdict
    by_input = verdict.cause == "input"
    return grade_of(truth, verdict.state == "different", verdict.call, by_input), verdict.sentence


def grade_of(truth: Truth | None, different: bool, call: Call | None, by_input: bool) -> str:
    """Return the grade. call: what is named. by_input: whether it is what this gets that is called different."""
    if truth is None:
        return "alarm" if different else "quiet"
    if not different:
        return "silent"
    if call is None:
        return "missed"
    if truth.data and by_input and not call.backward:
        return "named"
    module = call.kind != "api"
    path = call.path if module else ".".join((call.parent or "").split(".")[1:-3])
    return _grade(truth, path, module, call.backward or call.kind == "parameters_grad")


def _grade(truth: Truth, path: str, module: bool, backward: bool) -> str:
    if truth.backward != backward:
        return "around it" if backward and path == truth.path else "missed"
    if path == truth.path:
        return "named"
    if path.startswith(f"{truth.path}."):
        return "missed" if truth.own and module and not truth.backward else "named"
    return "around it" if module and truth.path.startswith(f"{path}." if path else "") else "missed"
