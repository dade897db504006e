"""Number things, so that a page has each of them once."""

from __future__ import annotations

from typing import Any


class Numbering(dict[Any, int]):
    """Give each thing a number, from 0, in the order in which they are first asked for."""

    def __missing__(self, thing: Any) -> int:
        self[thing] = number = len(self)
        return number
