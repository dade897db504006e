"""What was seen, recorded, filtered and skipped: coverage is data (spec/report.md)."""

from __future__ import annotations

import threading
from typing import Any

from attrs import define, field

__all__ = ["Coverage"]

_KINDS = ("seen", "recorded", "filtered", "unsupported", "failed", "left_out")


@define
class Coverage:
    """Counters of one rank's step. Safe to use from many threads.

    not_seen: parts of the run that could not be looked at, and why. missing: listed names that this framework
    does not have, and why.
    """

    counts: dict[str, dict[str, int]] = field(factory=lambda: {kind: {} for kind in _KINDS})
    not_seen: dict[str, str] = field(factory=dict)
    missing: dict[str, str] = field(factory=dict)
    unmatched: list[dict[str, Any]] = field(factory=list)
    _lock: threading.Lock = field(factory=threading.Lock, repr=False)

    def add(self, kind: str, what: str, n: int = 1) -> None:
        """Count ``n`` more of ``what`` under ``kind``.

        kind: seen, recorded, filtered, unsupported, failed or left_out.
        """
        with self._lock:
            table = self.counts[kind]
            table[what] = table.get(what, 0) + n

    def unseen(self, what: str, why: str) -> None:
        """State once that ``what`` could not be seen at all."""
        with self._lock:
            self.not_seen.setdefault(what, why)

    def json(self) -> dict[str, Any]:
        """The tally event's content."""
        with self._lock:
            return {
                "counts": {kind: dict(table) for kind, table in self.counts.items()},
                "not_seen": [{"what": what, "why": why} for what, why in self.not_seen.items()],
                "missing": dict(self.missing),
                "unmatched": list(self.unmatched),
            }
