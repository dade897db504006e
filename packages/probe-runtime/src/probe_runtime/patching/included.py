"""Apply further replacements together with the recorded functions, without recording their calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from .patches import Patches
from .places import Attribute

__all__ = ["Included"]


class Included:
    """Replace further places, while entered, whenever ``patches`` are applied.

    patches: the patches to go with.
    find: returns the places; called on entry, and when modules were imported since, which may bring more.
    beside: returns a context that is open meanwhile.
    places: the places found since the last entry; none when it is left.

    Leaving it a second time has no effect.
    """

    def __init__(
        self,
        patches: Patches,
        find: Callable[[], list[Attribute]],
        beside: Callable[[], contextlib.AbstractContextManager[Any]],
    ) -> None:
        self._patches = patches
        self._find = find
        self._beside = beside
        self._open = contextlib.ExitStack()
        self.places: list[Attribute] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:  # undoes the first half where the second fails
            self.places = self._find()
            self._patches.include(self.places)
            stack.callback(self._exclude)
            stack.enter_context(self._patches.telling(self._find_more))
            stack.enter_context(self._beside())
            self._open = stack.pop_all()
        return self

    def _find_more(self) -> None:
        known = {(id(p.owner), p.name) for p in self.places}
        more = [p for p in self._find() if (id(p.owner), p.name) not in known]
        self.places += more
        self._patches.include(more)

    def _exclude(self) -> None:
        places, self.places = self.places, []  # not held on to: `Patches` counts who holds a replacement
        self._patches.exclude(places)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
