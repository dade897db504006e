"""Find out whether anybody has kept a replacement that was in place, and put originals where it is held."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from sys import getrefcount
from typing import Any

from attrs import frozen

from .places import Place, Stood, layered
from .stale_references import OwnPair, OwnTuple, give_back


def functions_of(places: Iterable[Place]) -> OwnTuple:
    """Return what user code can get from places: the replacements, and static methods around them."""
    found: dict[int, Any] = {}
    for stood in (each for place in places for each in place.stood):
        found[id(stood.replacement)] = stood.replacement
        found[id(stood.ours)] = stood.ours
    return OwnTuple(found.values())


@frozen(eq=False)
class Stray:
    """A replacement that user code has kept where it cannot be taken back, and can pass on at any time.

    before: how many references there were to it and to what holds it in its place, before anybody kept one, beyond
        those that there are to each: tables of ours come and go.
    """

    stood: Stood
    before: tuple[int, ...]


class KeptCopies:
    """Count the references to replacements before they are put in place, and after."""

    def __init__(self) -> None:
        self._noted: list[tuple[OwnTuple, list[int]]] = []

    def note(self, functions: OwnTuple) -> None:
        """Count the references to these before they are put in place."""
        self._noted.append((functions, list(map(getrefcount, functions))))

    @contextmanager
    def tables_change(self) -> Iterator[None]:
        """Count no reference that tables of ours take or give up within this region; nothing is replaced there."""
        counts = [list(map(getrefcount, functions)) for functions, _ in self._noted]
        yield
        for (functions, before), was in zip(self._noted, counts, strict=True):
            now = map(getrefcount, functions)
            before[:] = [n + m - k for n, m, k in zip(before, now, was, strict=True)]

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

    def strays(self, places: Iterable[Place], known: Iterable[Stray]) -> list[Stray]:
        """Return the replacements that somebody holds; call it when they are taken back.

        known: those of before. One that is passed on is not held more often than at the last start.
        """
        counts = {id(f): (n, m) for f, n, m in self._counts()}
        kept = {id(each.stood.replacement): each for each in known}
        for stood in self.gained(places):
            if not isinstance(stood.replacement, type):
                before = tuple(counts[id(f)][0] for f in (stood.replacement, stood.ours))
                kept.setdefault(id(stood.replacement), Stray(stood, before))
        return [
            each
            for each in kept.values()
            if any(
                counts.get(id(f), (0, n + 1))[1] > n
                for f, n in zip((each.stood.replacement, each.stood.ours), each.before, strict=True)
            )
        ]

    def _counts(self) -> Iterator[tuple[Any, int, int]]:
        """Yield each replacement, and how much more often than the least of them it was held before, and is now."""
        for functions, before in self._noted:
            now = list(map(getrefcount, functions))  # whole, as who yields one holds it
            least = min(before, default=0), min(now, default=0)
            for function, n, m in zip(functions, before, now, strict=True):
                yield function, n - least[0], m - least[1]

    def _gained(self) -> set[int]:
        """Return the ids of those that are held more often than before."""
        gained: set[int] = set()
        for functions, before in self._noted:
            now = list(map(getrefcount, functions))
            if now != before:
                gained |= {id(f) for f, n, m in zip(functions, now, before, strict=True) if n > m}
        return gained - layered() if gained else gained
