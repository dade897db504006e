"""Number the values of each name within a step."""

from __future__ import annotations

import threading

from attrs import define, field


@define
class Counts:
    """Count the values of one step from 0, by name. Safe to use from many threads."""

    _next: dict[str, int] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def next_number(self, name: str) -> int:
        """Return the next number of ``name``; no other value gets it."""
        with self._lock:
            number = self._next.get(name, 0)
            self._next[name] = number + 1
            return number

    def gradient_number(self, name: str, number: int) -> int:
        """Return a number for the gradients of value ``number`` of ``name``: the same where it is free, else the next.

        It is not free where values are also saved under the name ``{name}_grad``.
        """
        partner = f"{name}_grad"
        with self._lock:
            free = max(number, self._next.get(partner, 0))
            self._next[partner] = free + 1
            return free
