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

    def take(self, name: str) -> int:
        """The next number of ``name``, which nothing else has or gets."""
        with self._lock:
            number = self._next.get(name, 0)
            self._next[name] = number + 1
            return number

    def take_partner(self, name: str, number: int) -> int:
        """A number for the gradients of the value ``name`` of this number: the same, where it is free.

        It is not where somebody also saves values under the name ``{name}_grad``: then it is the next that is.
        """
        partner = f"{name}_grad"
        with self._lock:
            free = max(number, self._next.get(partner, 0))
            self._next[partner] = free + 1
            return free
