"""Tell the records that hold a value which is not finite (spec/statistics.md, What is not finite)."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from .finite import kinds_asked_for, kinds_of
from .parts import Parts
from .written import only_views, writes_into

#: What a mask is made of. Where it comes with the inputs it is meant, as long as nothing but it follows.
MASK = frozenset(("-Inf",))
_NONE: frozenset[str] = frozenset()


@frozen(eq=False)
class Suspect:
    """Hold a record that has a value which is not finite, whoever made it.

    order: its place among the records of the rank, which is that of completion.
    given, made: the kinds of such values among what the call got, and what it returned.
    asked: the kinds that its other arguments ask for.
    """

    name: str
    order: int
    given: frozenset[str]
    made: frozenset[str]
    asked: frozenset[str] = _NONE

    def blamed(self, allowed: frozenset[str] = _NONE) -> tuple[frozenset[str], frozenset[str]]:
        """Return the kinds that it makes, and those that it brings from outside, without being asked for.

        allowed: kinds that are meant here, besides those that it is asked for.
        """
        allowed = self.asked | allowed
        brought = _NONE if only_views(self.name) else self.given - allowed - MASK
        return self.made - self.given - allowed, brought


def suspect_of(name: str, order: int, parts: Parts) -> Suspect | None:
    """Return a record as a suspect; None where all of it is finite."""
    given = made = held = _NONE
    for value in parts.values:
        kinds = kinds_of(value.tensor)
        if not kinds:
            continue
        if value.side == "out":
            made |= kinds
        elif writes_into(name, value.slot):
            held |= kinds
        else:
            given |= kinds
    if not given and not made and not held:
        return None
    given |= held & made  # what was written over is gone, and may have been memory that nobody wrote before
    return Suspect(
        name, order, given, made, _NONE.union(*(kinds_asked_for(value) for _, value in parts.others))
    )


def may_begin(found: Iterable[Suspect]) -> bool:
    """Return whether values that were not asked for may begin at one of these: the modules around it may tell more."""
    return any(made or brought for made, brought in (suspect.blamed() for suspect in found))
