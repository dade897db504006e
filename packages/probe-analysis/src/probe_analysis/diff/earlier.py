"""Hold what the comparisons of earlier steps tell about the next step, in little memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from .pairing import Pairing
from .verdict import STATES, State

if TYPE_CHECKING:
    from .run_diff import RunDiff


@frozen(eq=False)
class Earlier:
    """Hold what earlier steps tell about a step, and about one of its ranks.

    state: the worst of all verdicts. differs: the label of the last run that is different; empty without one.
    gradients: the largest level at which gradients of parameters were apart: weights may be as far apart.
    alone: in words the first call that only one of the two runs made.
    before: the last step of the same rank. agreed: the state of its verdict. left: as in its `RunDiff`.
    """

    state: State = "same"
    differs: str = ""
    gradients: float = 0.0
    alone: str = ""
    before: Pairing | None = None
    agreed: State = "same"
    left: frozenset[int] = frozenset()

    def forget(self) -> None:
        """Let go of what was read of the step before."""
        if self.before is not None:
            self.before.forget()


@frozen(eq=False)
class Past:
    """Hold what is known of all steps so far. last: the folders of a rank -> its last step, as in `Earlier`."""

    known: Earlier = field(factory=Earlier)
    last: Mapping[tuple[str, str], Earlier] = field(factory=dict)

    def of(self, pairing: Pairing) -> Earlier:
        """Return what a rank's next step begins with."""
        own = self.last.get(_folders(pairing), self.known)
        return evolve(self.known, before=own.before, agreed=own.agreed, left=own.left)

    def after(self, step: Sequence[RunDiff]) -> Past:
        """Return what is known after another step. step: its ranks, in their order."""
        known, last = self.known, dict(self.last)
        for each in step:
            state, pairing = each.verdict.state, each.pairing
            known = Earlier(
                max(known.state, state, key=STATES.index),
                pairing.label if state == "different" else known.differs,
                max(known.gradients, each.gradients),
                known.alone or each.alone,
            )
            last[_folders(pairing)] = Earlier(before=pairing, agreed=state, left=each.left)
        return Past(known, last)


def _folders(pairing: Pairing) -> tuple[str, str]:
    return pairing.a.folder, pairing.b.folder
