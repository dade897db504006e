"""Look at the calls of a run one by one for what is not finite, and for what is close to it."""

from __future__ import annotations

from attrs import define, field
from probe_format.read import Suspect, suspect_of

from probe_analysis.calls import Call, Parts, Run

from .risks import Risk, risks_of


@define(eq=False)
class Watch:
    """Collect what `NonFinite` is made of, while something else reads the records: in any order, each once.

    factor: how many times a magnitude may grow until it overflows to be a risk.
    calls: how many were looked at.
    known: how many of them have a tensor with numbers to tell by.
    """

    run: Run
    factor: float = 8.0
    calls: int = 0
    known: int = 0
    risks: list[Risk] = field(factory=list)
    _found: list[Suspect] = field(factory=list)

    def look(self, call: Call, parts: Parts) -> None:
        """Look at a call. parts: what is in its record."""
        self.calls += 1
        self.known += any("Max" in value.tensor for value in parts.values)
        suspect = suspect_of(call.name, call.order, parts)
        if suspect is not None:
            self._found.append(suspect)
        self.risks += risks_of(self.run, call, parts, self.factor)

    @property
    def suspects(self) -> list[Suspect]:
        """Return the records with values that are not finite, in the order of the file."""
        return sorted(self._found, key=lambda suspect: suspect.order)
