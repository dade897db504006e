"""The replaced places of this process: each is made ready once, then put and taken back by loops that compare.

A place is held replaced by everyone who needs it: the first puts it in place, the last takes it back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from .kept import KeptCopies, functions_of
from .lookup import resolve_owner
from .places import ABSENT, Function, Place

__all__ = ["Held", "attributes_of", "check_all", "lock", "place", "put_all", "replaced", "take_back_all"]

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


def check_all(places: Iterable[Place]) -> bool:
    """Look up anew what is there where it is something else than before; return whether it is anywhere."""
    changed = False
    for each in places:
        owner, name = each.owner, each.name
        held = owner.__dict__.get(name, ABSENT)
        if held is not each.theirs or (
            held is ABSENT and getattr(owner, name, ABSENT) is not each.now.original
        ):
            changed |= each.check()
    return changed


def put_all(places: Iterable[Place]) -> None:
    """Put ours in each place."""
    for each in places:
        if each.owner.__dict__.get(each.name, ABSENT) is each.theirs:
            each.is_put = True
            setattr(each.owner, each.name, each.ours)
        else:
            each.put()


def take_back_all(places: Iterable[Place]) -> list[Place]:
    """Put back what was there; return the places where somebody else has put something meanwhile, which stays."""
    taken = []
    for each in places:
        if each.first is each.now and each.owner.__dict__.get(each.name, ABSENT) is each.ours:
            each.is_put = False
            if each.theirs is ABSENT:
                delattr(each.owner, each.name)
            else:
                setattr(each.owner, each.name, each.theirs)
        elif not each.take_back():
            taken.append(each)
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
            take_back_all(last)
            kept.give_back(last)
        done()

    with lock:
        first = [each for each in places if not each.holders]
        for each in places:
            each.holders += 1
        try:
            check_all(first)
            kept.note(functions_of(first))
            put_all(first)
        except BaseException:
            release()
            raise
    return Held(release)
