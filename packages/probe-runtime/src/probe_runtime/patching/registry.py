"""The replaced places of this process: each is made ready once, then put and taken back by loops that compare.

A place is held replaced by everyone who needs it: the first puts it in place, the last takes it back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import eq, is_
from types import ModuleType, TracebackType
from typing import Any

import attrs

from .kept import KeptCopies, functions_of
from .lookup import resolve_owner
from .places import ABSENT, Function, Place, Stood
from .stale_references import OwnTuple

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


@attrs.frozen(eq=False)
class _Columns:
    """What the places of one owner hold, side by side: so they are compared in C, as a thousand of them take long.

    stood: what was there when they were last looked up: ``theirs``, and ``ours`` that stands in for it.
    inherited: the names that only a base of the owner has, and what it has under them, where a base can be changed.
    is_first: whether each place holds what it held when it was looked up first.
    """

    owner: Any
    places: list[Place]
    names: list[str]
    stood: list[Stood]
    theirs: OwnTuple
    ours: OwnTuple
    inherited: tuple[list[str], OwnTuple]
    is_first: bool

    @classmethod
    def of(cls, owner: Any, places: list[Place]) -> _Columns:
        stood = [each.now for each in places]
        inherited = [each for each in places if each.theirs is ABSENT and not _is_fixed(owner)]
        return cls(
            owner,
            places,
            [each.name for each in places],
            stood,
            OwnTuple([each.theirs for each in stood]),
            OwnTuple([each.ours for each in stood]),
            ([each.name for each in inherited], OwnTuple([each.now.original for each in inherited])),
            stood == [each.first for each in places],
        )

    def holds(self, values: OwnTuple) -> bool:
        return all(map(is_, map(vars(self.owner).get, self.names, repeat(ABSENT)), values))

    def check(self) -> bool:
        """Look up anew what is there where it is something else than before; return whether it is anywhere."""
        names, originals = self.inherited
        if self.holds(self.theirs) and all(
            map(eq, map(getattr, repeat(self.owner), names, repeat(ABSENT)), originals)
        ):
            return False
        for each in self.places:
            each.check()
        return self.stood != [each.now for each in self.places]

    def set(self, values: OwnTuple, is_put: bool) -> None:
        """Set all places to these. is_put: whether they are ours."""
        for each in self.places:
            each.is_put = is_put
        if type(self.owner) is ModuleType and ABSENT not in self.theirs:
            vars(self.owner).update(zip(self.names, values, strict=True))
            return
        for name, value in zip(self.names, values, strict=True):
            if value is ABSENT:
                delattr(self.owner, name)
            else:
                setattr(self.owner, name, value)


def _is_fixed(owner: Any) -> bool:
    """Return whether nobody can set an attribute of what a class inherits from, as its bases are C's."""
    return isinstance(owner, type) and all(base.__flags__ & _IMMUTABLE for base in owner.__mro__[1:])


class PlaceTable:
    """Places that are put and taken back together."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = list(places)
        self._arrange()

    def _arrange(self) -> None:
        owners: dict[int, list[Place]] = {}
        for each in self.places:
            owners.setdefault(id(each.owner), []).append(each)
        self._columns = [_Columns.of(places[0].owner, places) for places in owners.values()]

    def check(self) -> bool:
        """Look up anew what is there where it is something else than before; return whether it is anywhere."""
        changed = sum([columns.check() for columns in self._columns]) > 0  # all of them
        if changed:
            self._arrange()
        return changed

    def put(self, taken: Sequence[Place] = ()) -> None:
        """Put ours in each place but those that somebody else has taken."""
        changed = False
        for columns in self._columns:  # what an owner inherits may be ours by now, and is not compared again
            if taken or not columns.holds(columns.theirs):
                changed = True
                for each in columns.places:
                    if each not in taken:
                        each.put()
            else:
                columns.set(columns.ours, True)
        if changed:
            self._arrange()

    def take_back(self) -> list[Place]:
        """Put back what was there; return the places where somebody else has put something, which stays."""
        taken = []
        for columns in self._columns:
            if columns.is_first and columns.holds(columns.ours):
                columns.set(columns.theirs, False)
            else:
                taken += [each for each in columns.places if not each.take_back()]
        return taken


class Held:
    """What was done until `undo`, or until the ``with`` block is left; more calls do nothing."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def undo(self) -> None:
        """Undo it; more calls do nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def replaced(places: Sequence[Place], done: Callable[[], None] = lambda: None) -> Held:
    """Replace all of ``places`` until the result is undone.

    done: called by the undo, once they are back.
    """
    kept = KeptCopies()

    def release() -> None:
        with lock:
            last = []
            for each in reversed(places):
                each.holders -= 1
                if not each.holders:
                    last.append(each)
            table = PlaceTable(last)  # holds each of ours once more, as when they were counted
            table.take_back()
            kept.give_back(last)
        done()

    with lock:
        first = [each for each in places if not each.holders]
        for each in places:
            each.holders += 1
        try:
            table = PlaceTable(first)
            table.check()
            kept.note(functions_of(first))
            table.put()
        except BaseException:
            release()
            raise
    return Held(release)
