"""Hold and check the configuration's key `then`: what happens when a condition (of the key `when`) is met.

It says at which level and task the next steps are dumped, how many they are, and how often this happens.
"""

from attrs import frozen
from probe_format.task import DUMPING, TASKS

from .value_checks import choice, mapping, positive


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


reaction = mapping(
    Then,
    {
        "level": choice("L0", "L1", "mix"),
        "task": choice(*(name for name in DUMPING if TASKS[name].values)),
        "steps": positive,
        "times": positive,
    },
    "does not say what happens.",
    "Write {level: mix, task: tensor, steps: 1, times: 1}.",
)
"""Checks for a mapping of the keys of `Then`."""
