"""Replace many attributes of one owner in one go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import repeat
from operator import is_
from types import ModuleType
from typing import Any

import attrs

from .places import ABSENT, Attribute
from .stale_references import OwnTuple

__all__ = ["Group", "grouped"]


@attrs.frozen(eq=False)
class Group:
    """Attributes of one owner. A list has 1,500 functions, which are replaced at each start: no Python loop over them.

    places: the attributes one by one, for where other code changed some of them.
    names: their names.
    raws: what the owner's namespace holds of each.
    stand_ins: what it holds while patched.
    """

    owner: Any
    places: tuple[Attribute, ...]
    names: tuple[str, ...]
    raws: tuple[Any, ...]
    stand_ins: tuple[Any, ...]

    def is_original(self) -> bool:
        """Return whether the owner holds what it held when the places were looked up."""
        return self._holds(self.raws)

    def put(self) -> None:
        """Set the attributes to their replacements, except those that other code changed."""
        if self._holds(self.raws):
            self._set(self.names, self.stand_ins)
        else:
            for place in self.places:
                place.put()

    def restore(self) -> None:
        """Set the attributes to the original objects, except those that other code changed."""
        if not self._holds(self.stand_ins):
            for place in self.places:
                place.restore()
        elif self.raws[0] is ABSENT:
            deque(map(delattr, repeat(self.owner), self.names), maxlen=0)
        else:
            self._set(self.names, self.raws)

    def _holds(self, values: tuple[Any, ...]) -> bool:
        return all(map(is_, map(vars(self.owner).get, self.names, repeat(ABSENT)), values))

    def _set(self, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        if type(self.owner) is ModuleType:  # whose namespace is all there is to an attribute
            vars(self.owner).update(zip(names, values, strict=True))
        else:
            deque(map(setattr, repeat(self.owner), names, values), maxlen=0)


def grouped(places: Iterable[Attribute]) -> list[Group]:
    """Return the places by owner; those of inherited attributes apart. Of several for one name the first counts."""
    owners: dict[tuple[int, bool], dict[str, Attribute]] = {}
    for place in places:
        owners.setdefault((id(place.owner), place.raw is ABSENT), {}).setdefault(place.name, place)
    return [_group(tuple(named.values())) for named in owners.values()]


def _group(places: tuple[Attribute, ...]) -> Group:
    raws, stand_ins = OwnTuple(p.raw for p in places), OwnTuple(p.stand_in for p in places)
    return Group(places[0].owner, places, tuple(p.name for p in places), raws, stand_ins)
