"""Find by reference counts which replacements of functions user code has kept, and put the originals in their place.

Strays are replacements that user code holds where nothing can be changed, as in a local variable.
"""

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

    before: how many references there were to ``stood.replacement`` and to ``stood.ours`` before anybody kept one,
        beyond those that every replacement has (`_beyond_all`): tables of Probe's come and go.
    """

    stood: Stood
    before: tuple[int, int]


class KeptCopies:
    """Count the references to replacements before they are put in place, and after."""

    def __init__(self) -> None:
        self._noted: list[tuple[OwnTuple, list[int]]] = []

    def note(self, functions: OwnTuple) -> None:
        """Count the references to these functions before they are put in place."""
        self._noted.append((functions, _references(functions)))

    @contextmanager
    def tables_change(self) -> Iterator[None]:
        """Count no reference that Probe's own tables take or drop within this region; nothing is replaced there."""
        counts = [_references(functions) for functions, _ in self._noted]
        yield
        for (functions, before), was in zip(self._noted, counts, strict=True):
            before[:] = [n + m - k for n, m, k in zip(before, _references(functions), was, strict=True)]

    def gained(self, places: Iterable[Place]) -> list[Stood]:
        """Return the replacements that are held more often than before; call it when they are taken back."""
        gained: set[int] = set()
        for functions, before in self._noted:
            now = _references(functions)
            if now != before:
                gained |= {id(f) for f, n, m in zip(functions, now, before, strict=True) if n > m}
        if not gained:
            return []
        gained -= layered()
        stood = [stood for place in places for stood in place.stood]
        return [each for each in stood if not gained.isdisjoint((id(each.replacement), id(each.ours)))]

    def give_back(self, places: Iterable[Place]) -> list[Stood]:
        """Put the original wherever somebody has kept a replacement. Return the replacements that were kept.

        A local variable of a running function cannot be changed, nor an instance of a replacement that is a class.
        """
        gained = self.gained(places)
        functions = [stood for stood in gained if not isinstance(stood.replacement, type)]
        if functions:
            give_back(OwnPair(pair) for stood in functions for pair in stood.pairs)
        return gained

    def strays(self, places: Iterable[Place], known: Iterable[Stray]) -> list[Stray]:
        """Return the replacements that somebody holds; call it when they are taken back.

        known: the strays of before. A stray that was passed on is held no more often than at the last start, so the
            counts since then do not show it.
        """
        before, now = dict[int, int](), dict[int, int]()
        for functions, noted in self._noted:
            before |= _beyond_all(functions, noted)
            now |= _beyond_all(functions, _references(functions))
        kept = {id(each.stood.replacement): each for each in known}
        for stood in self.gained(places):
            if not isinstance(stood.replacement, type):
                counts = before[id(stood.replacement)], before[id(stood.ours)]
                kept.setdefault(id(stood.replacement), Stray(stood, counts))

        def is_held(stray: Stray) -> bool:
            which = id(stray.stood.replacement), id(stray.stood.ours)
            # One that is not counted here, as it is of other patches, may be held.
            return any(f not in now or now[f] > n for f, n in zip(which, stray.before, strict=True))

        return [*filter(is_held, kept.values())]


def _references(functions: OwnTuple) -> list[int]:
    """Return how many references there are to each function; in one call of `map`, as a loop would hold one more."""
    return list(map(getrefcount, functions))


def _beyond_all(functions: OwnTuple, counts: list[int]) -> dict[int, int]:
    """Return by id how many more references there are to each than to the one that has the fewest."""
    least = min(counts, default=0)
    return {which: count - least for which, count in zip(map(id, functions), counts, strict=True)}
