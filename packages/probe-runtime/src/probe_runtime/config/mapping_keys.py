"""Hold and check the configuration's keys whose values are mappings: `keep` and `then`.

`keep` says how many of the steps that were dumped last stay on the disk. `then` says what happens when a condition
(of the key `when`) is met: at which level and task the next steps are dumped, how many, and how often.
"""

from attrs import frozen
from probe_format.task import DUMPING, TASKS

from .keys import CALL_LEVELS
from .value_checks import choice, mapping, positive


@frozen
class Keep:
    """Which steps stay. last: how many, the newest ones."""

    last: int


kept_steps = mapping(
    Keep, {"last": positive}, "does not say which steps stay.", "Write {last: 5}.", required=["last"]
)
"""Checks for ``{last: K}``."""


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
        "level": choice(*CALL_LEVELS),
        "task": choice(*(name for name in DUMPING if TASKS[name].values)),
        "steps": positive,
        "times": positive,
    },
    "does not say what happens.",
    "Write {level: mix, task: tensor, steps: 1, times: 1}.",
)
"""Checks for a mapping of the keys of `Then`."""
