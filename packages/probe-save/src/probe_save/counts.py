"""Which number the next value of a name gets."""

from __future__ import annotations

import threading

from attrs import define, field

__all__ = ["Counts"]


@define
class Counts:
    """Counts of one step, from 0, by name. Safe to use from many threads."""

    _next: dict[str, int] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def take(self, name: str, *, gradient: bool) -> int:
        """The next number of ``name``, which nothing else has or gets.

        gradient: the record ``{name}_grad`` of that number is wanted as well. Where somebody also saves
        values under the name ``{name}_grad``, both take the next number that is free for both.
        """
        with self._lock:
            number = self._next.get(name, 0)
            if gradient:
                partner = f"{name}_grad"
                number = max(number, self._next.get(partner, 0))
                self._next[partner] = number + 1
            self._next[name] = number + 1
            return number
