"""Hold that a condition was met."""

from typing import Any

from attrs import frozen


@frozen
class Trigger:
    """A condition that was met.

    step: the step that met it.
    at: the first step that is dumped because of it.
    when: the condition as it was configured.
    why: what met it, in words.
    rank: of the process that met it; None where the run is not distributed.
    """

    step: int
    at: int
    when: str
    why: str
    rank: int | None = None

    @property
    def told(self) -> dict[str, Any]:
        """Return what the report of the step has of it."""
        return {"when": self.when, "why": self.why, "rank": self.rank}

    @property
    def cause(self) -> dict[str, Any]:
        """Return what the header of a step has of it that is dumped because of it."""
        return {"triggered": {"step": self.step, "when": self.when, "rank": self.rank}}
