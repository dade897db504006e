"""Judge whether the conditions of `when` are met by a step that has ended."""

import importlib
import math
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

from probe_format.errors import ConfigError, Problem
from probe_format.excerpts import cut, error_text

from probe_runtime.config import Condition
from probe_runtime.notice import notice

from .running_median import RunningMedian
from .signals import Signals
from .step_seen import StepSeen


class Judges:
    """Find the conditions that a step meets, and keep what they need from one step to the next."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        """Take signals from now on. Raises ConfigError when a function is not there."""
        self._conditions = conditions
        self._functions = {c: _function(c) for c in conditions if c.kind == "function"}
        self._files = {c.subject: os.path.abspath(c.subject) for c in conditions if c.kind == "file"}
        self._there = {path: os.path.lexists(path) for path in self._files.values()}
        self._medians = {c.subject: RunningMedian() for c in conditions if c.kind == "spike"}
        self._spikes: dict[str, str] = {}
        self._values: dict[str, float] = {}
        self._told: set[str] = set()
        self._wants_values = bool(self._medians or self._functions)
        self._signals = Signals(c.subject for c in conditions if c.kind == "signal")
        self._came: set[str] = set()

    @property
    def moments(self) -> frozenset[str]:
        """Return the gradients of parameters that they look at."""
        return frozenset(c.subject for c in self._conditions if c.kind == "norm")

    def close(self) -> None:
        """Put back what the signals did before."""
        self._signals.close()

    def observe(self, name: str, value: Any) -> None:
        """Take a value of the run."""
        if not self._wants_values:
            return
        try:
            number = self._values[name] = float(value)
        except Exception as error:
            self._tell(f"observe({name!r}) was given no number ({error_text(error)}), and has no effect.")
            return
        if (median := self._medians.get(name)) is None:
            return
        usual = median.add(number)
        for condition in self._conditions:
            if condition.kind == "spike" and condition.subject == name and condition.text not in self._spikes:
                if not math.isfinite(number):
                    self._spikes[condition.text] = f"{name} is {number}"
                elif usual is not None and condition.holds(number / usual):
                    times = f"{number / usual:.3g} times its running median {usual:.6g}"
                    self._spikes[condition.text] = f"{name} is {number:.6g}, {times}"

    def values(self) -> dict[str, float]:
        """Return what was observed last under each name in this step; the next step begins with none."""
        values, self._values = self._values, {}
        return values

    def met(self, seen: StepSeen) -> list[tuple[Condition, str]]:
        """Return the conditions that the step meets, each with what met it."""
        self._signals.look_after()
        self._came = self._signals.came()
        return [(each, why) for each in self._conditions if (why := self._why(each, seen)) is not None]

    def over(self) -> None:
        """Forget the spikes of a step that is over. Signals and files that came wait for one that is judged."""
        self._spikes.clear()

    def _why(self, condition: Condition, seen: StepSeen) -> str | None:
        return _JUDGE[condition.kind](self, condition, seen)

    def _non_finite(self, condition: Condition, seen: StepSeen) -> str | None:
        if seen.origin is None or (condition.subject and condition.subject != seen.part):
            return None
        if seen.part != "forward" and seen.update_was_skipped:
            return None
        return seen.origin.sentence

    def _norm(self, condition: Condition, seen: StepSeen) -> str | None:
        norms = seen.gradients(condition.subject)
        norm = math.hypot(*norms)
        if not norms or not condition.holds(norm) or (norm == math.inf and seen.update_was_skipped):
            return None
        return f"the norm of {len(norms)} gradients is {norm:.6g}"

    def _spike(self, condition: Condition, seen: StepSeen) -> str | None:
        return self._spikes.get(condition.text)

    def _signal(self, condition: Condition, seen: StepSeen) -> str | None:
        return "the signal came" if condition.subject in self._came else None

    def _file(self, condition: Condition, seen: StepSeen) -> str | None:
        path = self._files[condition.subject]
        before, self._there[path] = self._there[path], os.path.lexists(path)
        return f"{path} appeared" if self._there[path] and not before else None

    def _call(self, condition: Condition, seen: StepSeen) -> str | None:
        try:
            said = self._functions[condition](seen)
            if not said:
                return None
        except Exception as error:
            self._tell(f"{condition.text} failed, and does not count ({error_text(error)}).")
            return None
        return cut(said, 500) if isinstance(said, str) else "it returned a true value"

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            notice(f"Probe: {text}")


_JUDGE: dict[str, Callable[[Judges, Condition, StepSeen], str | None]] = {
    "non_finite": Judges._non_finite,
    "norm": Judges._norm,
    "spike": Judges._spike,
    "signal": Judges._signal,
    "file": Judges._file,
    "function": Judges._call,
}


def _function(condition: Condition) -> Callable[[StepSeen], Any]:
    if condition.function is not None:
        return condition.function
    module, _, name = condition.subject.partition(":")
    try:
        found: Any = operator.attrgetter(name)(importlib.import_module(module))
    except Exception as error:
        what = f"{condition.text} cannot be imported: {error_text(error)}."
        raise ConfigError([Problem("when", what, "Write package.module:function.")]) from error
    if not callable(found):
        raise ConfigError([Problem("when", f"{condition.text} is no function.", "Name one.")])
    function: Callable[[StepSeen], Any] = found
    return function
