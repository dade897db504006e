"""Find out whether anybody has kept a replacement that was in place, and put originals where it is held."""

from collections.abc import Iterable
from sys import getrefcount
from typing import Any

from .places import Place, Stood, layered
from .stale_references import OwnPair, OwnTuple, give_back


def functions_of(places: Iterable[Place]) -> OwnTuple:
    """Return what user code can get from places: the replacements, and static methods around them."""
    found: dict[int, Any] = {}
    for stood in (each for place in places for each in place.stood):
        found[id(stood.replacement)] = stood.replacement
        found[id(stood.ours)] = stood.ours
    return OwnTuple(found.values())


class KeptCopies:
    """Count the references to replacements before they are put in place, and after."""

    def __init__(self) -> None:
        self._noted: list[tuple[OwnTuple, list[int]]] = []

    def note(self, functions: OwnTuple) -> None:
        """Count the references to these before they are put in place."""
        self._noted.append((functions, list(map(getrefcount, functions))))

    def gained(self, places: Iterable[Place]) -> list[Stood]:
        """Return those that are held more often than before; call it when they are taken back."""
        gained = self._gained()
        stood = [stood for place in places for stood in place.stood] if gained else []
        return [each for each in stood if not gained.isdisjoint((id(each.replacement), id(each.ours)))]

    def give_back(self, places: Iterable[Place]) -> list[Stood]:
        """Put the original wherever somebody has kept a replacement. Return those that were kept.

        A local variable of a function that runs cannot be changed, nor what is made of a class.
        """
        gained = self.gained(places)
        functions = [stood for stood in gained if not isinstance(stood.replacement, type)]
        if functions:
            give_back(OwnPair(pair) for stood in functions for pair in stood.pairs)
        return gained

    def _gained(self) -> set[int]:
        """Return the ids of those that are held more often than before."""
        gained: set[int] = set()
        for functions, before in self._noted:
            now = list(map(getrefcount, functions))
            if now != before:
                gained |= {id(f) for f, n, m in zip(functions, now, before, strict=True) if n > m}
        return gained - layered() if gained else gained
