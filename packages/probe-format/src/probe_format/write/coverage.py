"""Count what was seen, recorded, filtered and skipped, for the report (spec/report.md)."""

import itertools
import threading
from typing import Any

from attrs import define, field

from probe_format.journal.frames import Count

_KINDS = ("seen", "recorded", "filtered", "unsupported", "failed", "left_out")


@define
class Coverage:
    """Count what one rank's step saw and recorded. Safe to use from many threads.

    written: what -> how many were seen and recorded; the writer raises these together with their events.
    not_seen: parts of the run that could not be looked at, and why.
    missing: listed names that this framework does not have, and why.
    graphs: name of a compiled graph -> what its copies gave (spec/report.md).
    """

    counts: dict[str, dict[str, int]] = field(factory=lambda: {kind: {} for kind in _KINDS})
    written: dict[str, Count] = field(factory=dict)
    not_seen: dict[str, str] = field(factory=dict)
    missing: dict[str, str] = field(factory=dict)
    graphs: dict[str, dict[str, Any]] = field(factory=dict)
    _lock: threading.Lock = field(factory=threading.Lock, repr=False)

    def add(self, kind: str, what: str, n: int = 1) -> None:
        """Count ``n`` more of ``what`` under ``kind``.

        kind: seen, recorded, filtered, unsupported, failed or left_out.
        """
        with self._lock:
            table = self.counts[kind]
            table[what] = table.get(what, 0) + n

    def outcome(self, what: str, kind: str, why: str | None = None) -> None:
        """Count one more of ``what`` as seen, and its outcome, under one lock: no reader gets one without the other.

        kind: recorded, filtered or failed, under which ``why`` is counted (``what`` itself if None).
        """
        with self._lock:
            for table, key in ((self.counts["seen"], what), (self.counts[kind], why or what)):
                table[key] = table.get(key, 0) + 1

    def unseen(self, what: str, why: str) -> None:
        """Record once that ``what`` could not be seen at all."""
        with self._lock:
            self.not_seen.setdefault(what, why)

    def json(self) -> dict[str, Any]:
        """Return the content of the tally event. Must not run while events are written (`RankWriter.finish`)."""
        with self._lock:
            written = {what: count.n for what, count in self.written.items()}
            counts = {kind: dict(table) for kind, table in self.counts.items()}
            for kind in ("seen", "recorded"):
                counts[kind] = written | {w: n + written.get(w, 0) for w, n in counts[kind].items()}
            return {
                "counts": {
                    kind: {what: n for what, n in table.items() if n} for kind, table in counts.items()
                },
                "not_seen": [{"what": what, "why": why} for what, why in self.not_seen.items()],
                "missing": dict(self.missing),
                **({"graphs": dict(self.graphs)} if self.graphs else {}),
                "unmatched": [],  # filled in by the session, which has the selection
            }


class Tally:
    """Count exactly from many threads; `add` takes no lock.

    counter: ``next`` of it is `add`.
    """

    __slots__ = ("_lock", "_reads", "counter")

    def __init__(self) -> None:
        self.counter = itertools.count()
        self._reads = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        """Count one more."""
        next(self.counter)

    @property
    def value(self) -> int:
        """Return the count, without the numbers that reading takes from the counter."""
        with self._lock:
            self._reads += 1
            return next(self.counter) - self._reads + 1
