"""Places that hold a function: an attribute of a module or class, an item of a dict or list, a default argument."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Protocol

import attrs

__all__ = ["ABSENT", "Attribute", "Default", "Function", "Item", "Place", "Replaceable", "attribute", "replaced"]

Function = Callable[..., Any]


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()
"""In place of the raw value of an attribute that the owner inherits, so that putting it back means
deleting."""


class Place(Protocol):
    """Something that can hold a replacement for a while. `put` and `restore` leave alone what other code put there."""

    @property
    def original(self) -> Function: ...
    @property
    def replacement(self) -> Function: ...
    def put(self) -> None: ...
    def restore(self) -> None: ...


@attrs.frozen(eq=False)
class Attribute:
    """owner.name, where owner is a module or a class.

    raw: what the owner's own namespace holds (ABSENT when inherited, a staticmethod object when written so).
    stand_in: what it holds while patched.
    original, replacement: the functions in these two.
    """

    owner: Any
    name: str
    raw: Any
    stand_in: Any
    original: Function
    replacement: Function
    label: Any = None
    """Under which the calls are recorded, where they are."""

    def current(self) -> Any:
        """Return what the owner's own namespace holds now."""
        return vars(self.owner).get(self.name, ABSENT)

    def put(self) -> None:
        """Let the attribute be the replacement, if it still is the original."""
        if vars(self.owner).get(self.name, ABSENT) is self.raw:
            setattr(self.owner, self.name, self.stand_in)

    def restore(self) -> None:
        """Let it be the very original object again; an inherited one is deleted."""
        if vars(self.owner).get(self.name, ABSENT) is self.stand_in:
            if self.raw is ABSENT:
                delattr(self.owner, self.name)
            else:
                setattr(self.owner, self.name, self.raw)


def attribute(owner: Any, name: str, make: Callable[[Function], Function], label: Any = None) -> Attribute:
    """The place owner.name with make(original) as its replacement; AttributeError if the owner has no such
    name."""
    raw = vars(owner).get(name, ABSENT)
    if isinstance(raw, (staticmethod, classmethod)) and not isinstance(owner, ModuleType):
        original: Function = raw.__func__
        replacement = make(original)
        return Attribute(owner, name, raw, type(raw)(replacement), original, replacement, label)
    original = getattr(owner, name)
    replacement = make(original)
    return Attribute(owner, name, raw, replacement, original, replacement, label)


@attrs.frozen(eq=False)
class Item:
    """holder[key], where holder is a namespace, a dict or a list."""

    holder: Any = attrs.field(repr=False)
    key: Any
    original: Function
    replacement: Function

    def put(self) -> None:
        """Let the place hold the replacement, if it still holds the original."""
        self._swap(self.original, self.replacement)

    def restore(self) -> None:
        """Let the place hold the original again, if it still holds the replacement."""
        self._swap(self.replacement, self.original)

    def _swap(self, old: Any, new: Any) -> None:
        try:
            if self.holder[self.key] is old:
                self.holder[self.key] = new
        except (KeyError, IndexError):  # taken away meanwhile: nothing to do
            pass


@attrs.frozen(eq=False)
class Default:
    """A default argument: `def block(x, act=F.relu)`. `key` is its index among the positional defaults, or
    a name."""

    function: Any
    key: int | str
    original: Function
    replacement: Function

    def put(self) -> None:
        """Let the default be the replacement, if it still is the original."""
        self._swap(self.original, self.replacement)

    def restore(self) -> None:
        """Let it be the original again, if it still is the replacement."""
        self._swap(self.replacement, self.original)

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
    """Something that is replaced by `put` and comes back with `restore`, which undoes nothing that was not done."""

    def put(self) -> None: ...
    def restore(self) -> None: ...


@contextlib.contextmanager
def replaced(places: Sequence[Replaceable]) -> Iterator[None]:
    """Replace all of ``places`` while this is open; they come back in reverse order, also when the block raises."""
    try:
        for place in places:
            place.put()
        yield
    finally:
        for place in reversed(places):
            place.restore()
