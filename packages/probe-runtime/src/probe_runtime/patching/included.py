"""Replacements that come and go with the recorded functions, and are not recorded themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from .patches import Patches
from .places import Attribute

__all__ = ["Included"]


class Included:
    """While entered, the places that ``find()`` gives are replaced whenever ``patches`` are applied.

    beside: what else is open meanwhile. ``places`` are those of the last time. Leaving more than once is as once.
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
            stack.callback(self._patches.exclude, self.places)
            stack.enter_context(self._beside())
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
