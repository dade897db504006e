"""Say what happens when a condition is met: the key `then`."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen
from probe_format.errors import Problem
from probe_format.excerpts import brief
from probe_format.suggest import did_you_mean

from .value_checks import Check, Checked, choice, positive

_EXAMPLE = "Write {level: mix, task: tensor, steps: 1, times: 1}."


@frozen
class Then:
    """What happens when a condition is met.

    level, task: of the steps that follow; None for those of the configuration.
    steps: how many steps they are.
    times: how often it happens.
    """

    level: str | None = None
    task: str | None = None
    steps: int = 1
    times: int = 1

    @property
    def raises(self) -> bool:
        """Return whether steps that follow are dumped at another level or task."""
        return self.level is not None or self.task is not None


_KEYS: dict[str, Check] = {
    "level": choice("L0", "L1", "mix"),
    "task": choice("statistics", "tensor"),
    "steps": positive,
    "times": positive,
}


def reaction(value: object, where: str) -> Checked:
    """Check for a mapping of the keys of `Then`."""
    if isinstance(value, Then):
        return value, ()
    if not isinstance(value, Mapping):
        return None, (Problem(where, f"{brief(value)} does not say what happens.", _EXAMPLE),)
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, given in value.items():
        if name not in _KEYS:
            hint = did_you_mean(str(name), list(_KEYS)) or _EXAMPLE
            problems.append(Problem(where, f"{brief(name)} is not known.", hint))
        elif given is not None:
            found[name], wrong = _KEYS[name](given, f"{where}.{name}")
            problems += wrong
    return (None, tuple(problems)) if problems else (Then(**found), ())
