"""Judge whether the conditions of `when` are met by a step that has ended."""

import importlib
import math
import operator
import os
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from probe_format.errors import ConfigError, Problem
from probe_format.excerpts import cut, error_text, unsignalled
from probe_format.watch import KINDS

from probe_runtime.config import Condition
from probe_runtime.notice import Notices

from .row import WatchedRow
from .signals import Signals
from .step_seen import StepSeen

#: How many values the median is of, and how many there must be before one can be a spike.
WINDOW, FEWEST = 100, 10


class Judges:
    """Find the conditions that a step meets, and keep what they need from one step to the next."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        """Take signals from now on. Raises ConfigError when a function is not there."""
        self._conditions = conditions
        self._functions = {c: _function(c) for c in conditions if c.kind == "function"}
        self._files = {c.subject: os.path.abspath(c.subject) for c in conditions if c.kind == "file"}
        self._there = {path: os.path.lexists(path) for path in self._files.values()}
        #: The last finite values, of which a spike is above the median.
        self._finite = {c.subject: deque[float](maxlen=WINDOW) for c in conditions if c.kind == "spike"}
        self._spikes: dict[str, str] = {}
        self._values: dict[str, float] = {}
        self._tell = Notices().tell
        self._signals = Signals(c.subject for c in conditions if c.kind == "signal")
        self._came: set[str] = set()

    def close(self) -> None:
        """Put back what the signals did before."""
        self._signals.close()

    def observe(self, name: str, value: Any) -> None:
        """Take a value of the run."""
        if not (self._finite or self._functions):
            return
        try:
            number = self._values[name] = float(value.detach() if hasattr(value, "detach") else value)
        except unsignalled(Exception) as error:
            self._tell(f"observe({name!r}) was given no number ({error_text(error)}), and has no effect.")
            return
        if name not in self._finite:
            return
        usual = self._usual(name, number)
        for condition in self._conditions:
            if condition.kind == "spike" and condition.subject == name and condition.text not in self._spikes:
                if not math.isfinite(number):
                    self._spikes[condition.text] = f"{name} is {number}"
                elif usual is not None and condition.holds(number / usual):
                    times = f"{number / usual:.3g} times its running median {usual:.6g}"
                    self._spikes[condition.text] = f"{name} is {number:.6g}, {times}"

    def _usual(self, name: str, value: float) -> float | None:
        """Return the median of the values before this one; None where they are too few or it is not above 0."""
        before = self._finite[name]
        median = statistics.median(before) if len(before) >= FEWEST else 0.0
        if math.isfinite(value):
            before.append(value)
        return median if median > 0 else None

    def watched(self, row: WatchedRow) -> None:
        """Take the row of a step (task `watch`): the norm of each kind is a value, if the run gave none so named."""
        wanted = KINDS if self._functions else [kind for kind in KINDS if kind in self._finite]
        for kind in wanted:
            if kind not in self._values and (norms := row.norms(kind)):
                self.observe(kind, math.hypot(*norms))

    def values(self) -> dict[str, float]:
        """Return what was observed last under each name in this step; the next step begins with none."""
        values, self._values = self._values, {}
        return values

    def met(self, seen: StepSeen) -> list[tuple[Condition, str]]:
        """Return the conditions that the step meets, each with what met it."""
        self._signals.take_again()
        self._came = self._signals.came()
        return [
            (each, why)
            for each in self._conditions
            if (why := _JUDGE[each.kind](self, each, seen)) is not None
        ]

    def over(self) -> None:
        """Forget the spikes of a step that is over. Signals and files that came wait for the next judged step."""
        self._spikes.clear()

    def _norm(self, condition: Condition, seen: StepSeen) -> str | None:
        norms = seen.gradients(condition.subject)
        norm = math.hypot(*norms)
        if not norms or not condition.holds(norm) or (norm == math.inf and seen.update_was_skipped):
            return None
        return f"the norm of {len(norms)} gradients is {norm:.6g}"

    def _file(self, condition: Condition, seen: StepSeen) -> str | None:
        path = self._files[condition.subject]
        before, self._there[path] = self._there[path], os.path.lexists(path)
        return f"{path} appeared" if self._there[path] and not before else None

    def _call(self, condition: Condition, seen: StepSeen) -> str | None:
        try:
            said = self._functions[condition](seen)
            if not said:
                return None
        except unsignalled(Exception) as error:
            self._tell(f"{condition.text} failed, and does not count ({error_text(error)}).")
            return None
        return cut(said, 500) if isinstance(said, str) else "it returned a true value"


_JUDGE: dict[str, Callable[[Judges, Condition, StepSeen], str | None]] = {
    "non_finite": lambda self, condition, seen: seen.not_finite(condition.subject),
    "norm": Judges._norm,
    "spike": lambda self, condition, seen: self._spikes.get(condition.text),
    "signal": lambda self, c, seen: "the signal came" if c.subject in self._came else None,
    "file": Judges._file,
    "function": Judges._call,
}


def _function(condition: Condition) -> Callable[[StepSeen], Any]:
    if condition.function is not None:
        return condition.function
    module, _, name = condition.subject.partition(":")
    try:
        found: Any = operator.attrgetter(name)(importlib.import_module(module))
    except unsignalled(Exception) as error:
        what = f"{condition.text} cannot be imported: {error_text(error)}."
        raise ConfigError([Problem("when", what, "Write package.module:function.")]) from error
    if not callable(found):
        raise ConfigError([Problem("when", f"{condition.text} is no function.", "Name one.")])
    function: Callable[[StepSeen], Any] = found
    return function
