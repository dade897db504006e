"""Replace a function where it is held: in an attribute, an item of a dict or list, or a default argument."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Protocol

import attrs

__all__ = [
    "ABSENT",
    "Attribute",
    "Default",
    "Function",
    "Item",
    "Place",
    "Replaceable",
    "attribute",
    "replaced",
]

Function = Callable[..., Any]


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()
"""Marks an attribute that the owner inherits: it has no raw value, and putting it back means deleting it."""


class Place(Protocol):
    """A place that can hold a replacement for a while. `put` and `restore` leave alone what other code put there."""

    @property
    def original(self) -> Function: ...
    @property
    def replacement(self) -> Function: ...
    def put(self) -> None: ...
    def restore(self) -> None: ...


@attrs.frozen(eq=False)
class Attribute:
    """The attribute owner.name of a module or class.

    raw: what the owner's own namespace holds (ABSENT when inherited, a staticmethod object when written so).
    stand_in: what it holds while patched.
    original: the function in ``raw``, or the inherited one.
    replacement: the function in ``stand_in``.
    """

    owner: Any
    name: str
    raw: Any
    stand_in: Any
    original: Function
    replacement: Function
    label: Any = None
    """The label that the calls are recorded under; None where they are not recorded."""

    def put(self) -> None:
        """Set the attribute to the replacement, if it still is the original."""
        if _held_by(self.owner, self.name) is self.raw:
            setattr(self.owner, self.name, self.stand_in)

    def restore(self) -> None:
        """Set it to the original object again, if it still is the replacement; delete it where it was inherited."""
        if _held_by(self.owner, self.name) is self.stand_in:
            if self.raw is ABSENT:
                delattr(self.owner, self.name)
            else:
                setattr(self.owner, self.name, self.raw)


def _held_by(owner: Any, name: str) -> Any:
    """Return what the owner's own namespace holds under a name; ABSENT where that is nothing."""
    try:
        return owner.__dict__[name]
    except KeyError:
        return ABSENT


def attribute(owner: Any, name: str, make: Callable[[Function], Function], label: Any = None) -> Attribute:
    """Return the place owner.name with make(original) as its replacement.

    Raises AttributeError when the owner has no such name.
    """
    raw = _held_by(owner, name)
    if isinstance(raw, (staticmethod, classmethod)) and not isinstance(owner, ModuleType):
        original: Function = raw.__func__
        replacement = make(original)
        return Attribute(owner, name, raw, type(raw)(replacement), original, replacement, label)
    original = getattr(owner, name)
    replacement = make(original)
    return Attribute(owner, name, raw, replacement, original, replacement, label)


class _Swapped:
    """A place that holds the function itself, so that putting and restoring are one exchange in both directions."""

    __slots__ = ()
    original: Function
    replacement: Function

    def put(self) -> None:
        """Set the place to the replacement, if it still holds the original."""
        self._swap(self.original, self.replacement)

    def restore(self) -> None:
        """Set the place to the original again, if it still holds the replacement."""
        self._swap(self.replacement, self.original)

    def _swap(self, old: Any, new: Any) -> None:
        raise NotImplementedError


@attrs.frozen(eq=False)
class Item(_Swapped):
    """The item holder[key] of a namespace, a dict or a list.

    original: the function that it holds.
    replacement: what it holds while patched.
    """

    holder: Any = attrs.field(repr=False)
    key: Any
    original: Function
    replacement: Function

    def _swap(self, old: Any, new: Any) -> None:
        try:
            if self.holder[self.key] is old:
                self.holder[self.key] = new
        except (KeyError, IndexError):  # the item is gone: nothing to do
            pass


@attrs.frozen(eq=False)
class Default(_Swapped):
    """A default argument of a function: `def block(x, act=F.relu)`.

    key: its index among the positional defaults, or the name of a keyword-only one.
    original: the default.
    replacement: the default while patched.
    """

    function: Any
    key: int | str
    original: Function
    replacement: Function

    def _swap(self, old: Any, new: Any) -> None:
        if isinstance(self.key, str):
            named = self.function.__kwdefaults__ or {}
            if named.get(self.key) is old:
                named[self.key] = new
        else:
            values = list(self.function.__defaults__ or ())
            if self.key < len(values) and values[self.key] is old:
                values[self.key] = new
                self.function.__defaults__ = tuple(values)


class Replaceable(Protocol):
    """Something that `put` replaces and `restore` brings back. `restore` without `put` has no effect."""

    def put(self) -> None: ...
    def restore(self) -> None: ...


@contextlib.contextmanager
def replaced(places: Sequence[Replaceable]) -> Iterator[None]:
    """Replace all of ``places`` within the block; they are restored in reverse order, also when it raises."""
    try:
        for place in places:
            place.put()
        yield
    finally:
        for place in reversed(places):
            place.restore()
