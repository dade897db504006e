"""Replace attributes of modules and classes (places) in this process, and put the originals back, many at a time.

A place is made once for each replacement of a name, and what it holds is compared before it changes.

Several may need a place replaced at once: the first puts the replacement there, the last takes it back.

Promise: off is off. Never is a copy of the original put back, or anything written over what somebody else has put there
meanwhile. Held by tests/torch/test_off.py, tests/mindspore/test_off.py.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import call, eq, is_
from types import ModuleType
from typing import Any, TypeVar

from .kept import KeptCopies, functions_of
from .lookup import resolve_owner
from .places import ABSENT, Function, Place
from .stale_references import Own, OwnTuple

_T = TypeVar("_T")
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
lock = threading.RLock()
"""Held while places change."""
os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
_places: dict[tuple[Any, ...], Place] = {}


def place(owner: Any, name: str, make: Callable[..., Any], *about: Any) -> Place:
    """Return the place owner.name with make(original, *about) as its replacement; made once per process.

    A name that the owner does not have goes away again when it is taken back.
    """
    key = (id(owner), name, make, about)
    found = _places.get(key)
    if found is None:
        found = Place(owner, name, (lambda original: make(original, *about)) if about else make)
        _places[key] = found
    return found


def attributes_of(rows: Iterable[tuple[str, ...]], make: Callable[..., Function]) -> list[Place]:
    """Return the places of those rows that this process has.

    rows: (dotted path of the owner, name, further arguments of ``make``).
    make: takes a function, and the further arguments of its row, and returns the replacement.
    """
    rows = list(rows)
    owners = {path: resolve_owner(path) for path in {path for path, *_ in rows}}
    return [
        place(owners[path], name, make, *about)
        for path, name, *about in rows
        if owners[path] is not None and hasattr(owners[path], name)
    ]


def _is_fixed(owner: Any) -> bool:
    """Return whether nobody can set an attribute of what a class inherits from, as its bases are C's."""
    return isinstance(owner, type) and all(base.__flags__ & _IMMUTABLE for base in owner.__mro__[1:])


class PlaceTable:
    """Hold places that are put and taken back together: a thousand take long, so loops in C compare and set them.

    places: all of them.
    functions: what user code can get from them.
    """

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = list(places)
        self._is_checked = False
        self._arrange()

    def _arrange(self) -> None:
        """Put side by side what the places hold: theirs, and ours.

        _single: the places that hold something else than when they were looked up first; each is compared by itself.
        _usual: all others.
        _inherited: the owners and names of places where only a base of the owner has the name, and can be changed.
        """
        self.functions = functions_of(self.places)
        self._stood = [each.now for each in self.places]
        self._single = [each for each in self.places if each.now is not each.first]
        self._usual = usual = [each for each in self.places if each.now is each.first]
        self._gets = [vars(each.owner).get for each in usual]
        self._names = [each.name for each in usual]
        self._theirs = OwnTuple(each.now.theirs for each in usual)
        self._ours = OwnTuple(each.now.ours for each in usual)
        inherited = [each for each in usual if each.now.theirs is ABSENT and not _is_fixed(each.owner)]
        self._inherited = [each.owner for each in inherited], [each.name for each in inherited]
        self._originals = OwnTuple(each.now.original for each in inherited)
        self._arrange_changes()

    def _arrange_changes(self) -> None:
        """Put side by side what is set and deleted. _modules: the namespaces of modules, with all that is set there."""
        self._modules: dict[int, tuple[dict[str, Any], Own, Own]] = {}
        others = []
        for each in self._usual:
            if type(each.owner) is ModuleType and each.now.theirs is not ABSENT:
                _, ours, theirs = self._modules.setdefault(id(each.owner), (vars(each.owner), Own(), Own()))
                ours[each.name], theirs[each.name] = each.now.ours, each.now.theirs
            else:
                others.append(each)
        self._sets = [each.owner for each in others], [each.name for each in others]
        self._set_ours = OwnTuple(each.now.ours for each in others)
        self._backs = [each for each in others if each.now.theirs is not ABSENT]
        gone = [each for each in others if each.now.theirs is ABSENT]
        self._deletes = [each.owner for each in gone], [each.name for each in gone]

    def _holds(self, values: OwnTuple) -> bool:
        return all(map(is_, map(call, self._gets, self._names, repeat(ABSENT)), values))

    def check(self) -> bool:
        """Look up anew what the places hold where that has changed; return whether it has anywhere."""
        inherited = map(getattr, *self._inherited, repeat(ABSENT))
        as_before = self._holds(self._theirs) and all(map(eq, inherited, self._originals))
        singly = self._single if as_before else self.places
        for each in singly:
            each.check()
        self._is_checked = True
        return self._arranged(singly)

    def _arranged(self, singly: list[Place]) -> bool:
        changed = bool(singly) and self._stood != [each.now for each in self.places]
        if changed:
            self._arrange()
        return changed

    def put(self, kept: KeptCopies, taken: Sequence[Place] = ()) -> None:
        """Put ours in each place but those that somebody else has taken, after a comparison unless `check` made it.

        kept: counts references to replacements, but for those that this table comes to hold.
        """
        # What an owner inherits may be ours by now, and is not compared again.
        as_before = not taken and (self._is_checked or self._holds(self._theirs))
        self._is_checked = False
        if as_before:
            for each in self._usual:
                each.is_put = True
            for names, ours, _ in self._modules.values():
                names.update(ours)
            deque(map(setattr, *self._sets, self._set_ours), 0)
        singly = self._single if as_before else self.places
        for each in singly:
            if each not in taken:
                each.put()
        if singly:
            with kept.tables_change():
                self._arranged(singly)

    def take_back(self) -> list[Place]:
        """Put back what was there; return the places where somebody else has put something, which stays."""
        as_before = self._holds(self._ours)
        if as_before:
            for each in self._usual:
                each.is_put = False
            for names, _, theirs in self._modules.values():
                names.update(theirs)
            for each in self._backs:
                setattr(each.owner, each.name, each.now.theirs)
            deque(map(delattr, *self._deletes), 0)
        return [each for each in (self._single if as_before else self.places[::-1]) if not each.take_back()]


class Held:
    """A change that lasts until `undo`, or until the ``with`` block is left."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def undo(self) -> None:
        """Undo the change; more calls do nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *error: object) -> None:
        self.undo()


@functools.cache
def _table_of(places: tuple[Place, ...]) -> PlaceTable:
    return PlaceTable(places)


def replaced(places: Iterable[Place], done: Callable[[], None] = lambda: None) -> Held:
    """Replace all of ``places`` until the result is undone.

    done: called by the undo, once they are back.
    """
    table, kept = _table_of(tuple(places)), KeptCopies()

    def release() -> None:
        with lock:
            last = []
            for each in table.places:
                each.holders -= 1
                if not each.holders:
                    last.append(each)
            if len(last) == len(table.places):
                table.take_back()
            else:
                for each in reversed(last):
                    each.take_back()
            kept.give_back(last)
        done()

    with lock:
        first = [each for each in table.places if not each.holders]
        for each in table.places:
            each.holders += 1
        try:
            if len(first) == len(table.places):
                table.check()
                kept.note(table.functions)
                table.put(kept)
            else:
                kept.note(functions_of(first))
                for each in first:
                    each.put()
        except BaseException:
            release()
            raise
    return Held(release)


def listening(listeners: list[_T], listener: _T, places: Iterable[Place]) -> Held:
    """Keep ``places`` replaced until the result is undone, and ``listener`` among ``listeners`` meanwhile.

    listeners: what the replacements call.
    """
    listeners.append(listener)
    return replaced(places, lambda: listeners.remove(listener))
