"""Count what was seen, recorded, filtered and skipped in a rank's step, and keep the largest norms and the first
tensor that is not finite, for the report (spec/report.md).

Promise: Probe says what it left out. Never is something seen that is not counted as recorded, filtered or failed, or
something skipped without a word in the report. Held by tests/torch/test_coverage.py, tests/mindspore/test_coverage.py.
"""

import itertools
import math
import threading
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, ClassVar

from attrs import define, field

from probe_format.journal.frames import Count
from probe_format.jsonio import number
from probe_format.schema.finite import non_finite
from probe_format.values import ValuePath

_KINDS = ("seen", "recorded", "filtered", "unsupported", "failed", "left_out")


class _Counts(dict[str, Count]):
    """Hold one count for each thing that is counted: threads that meet get the same; a defaultdict may make two."""

    def __missing__(self, what: str) -> Count:
        return self.setdefault(what, Count())


@define
class Coverage:
    """Count what one rank's step saw and recorded. Safe to use from many threads.

    written: what -> how many were seen and recorded; the writer raises these together with their events.
    not_seen: parts of the run that could not be looked at, and why.
    missing: listed names that this framework does not have, and why.
    graphs: name of a compiled graph -> what its copies gave (spec/report.md).
    """

    counts: dict[str, dict[str, int]] = field(factory=lambda: {kind: {} for kind in _KINDS})
    written: dict[str, Count] = field(factory=_Counts)
    not_seen: dict[str, str] = field(factory=dict)
    missing: dict[str, str] = field(factory=dict)
    graphs: dict[str, dict[str, Any]] = field(factory=dict)
    _lock: threading.RLock = field(factory=threading.RLock, repr=False)

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
            written = {what: count.n for what, count in self.written.copy().items()}  # others may add
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

    counter: ``next(counter)`` counts one more, as `add` does.
    """

    __slots__ = ("_lock", "_reads", "counter")

    def __init__(self) -> None:
        self.counter = itertools.count()
        self._reads = 0
        self._lock = threading.RLock()

    def add(self) -> None:
        """Count one more."""
        next(self.counter)

    @property
    def value(self) -> int:
        """Return the count, without the numbers that reading takes from the counter."""
        with self._lock:
            self._reads += 1
            return next(self.counter) - self._reads + 1


#: How many norms are kept.
LARGEST = 5
#: The norm of token numbers and masks means nothing.
_WHOLE = ("int", "uint", "bool")


@define
class Summary:
    """Keep the extremes of the tensors of a step. Safe to use from many threads.

    norms: the largest, each with the first slot that had it, as a tensor that is passed on has many.
    least: the smallest of ``norms`` once there are `LARGEST`, -1 before.
    found: finite norms of floats over ``least`` that came since `settle`: (norm, record, label and path for `slot_of`).
        Whoever adds to it calls `settle` when there are more than ``MANY``.
    first: the first tensor that is not finite. order: its place among all tensors.
    """

    MANY: ClassVar[int] = 64

    norms: dict[float, str] = field(factory=dict)
    least: float = -1.0
    found: list[tuple[float, str, str | None, ValuePath]] = field(factory=list)
    first: dict[str, str] | None = None
    order: float = math.inf
    _lock: threading.RLock = field(factory=threading.RLock, repr=False, eq=False)

    def add(self, record: str, slot: str, tensor: Mapping[str, Any], order: float = 0) -> None:
        """Add one tensor object (spec/statistics.md) of a record.

        slot: its place in the record, as ``output.0``; empty for the whole record.
        order: its place among all tensors, where they do not come in their order.
        """
        norm = number(tensor.get("Norm"))
        if norm is None:
            return
        if norm - norm == 0:
            if norm > self.least and not str(tensor.get("dtype")).rpartition(".")[2].lower().startswith(
                _WHOLE
            ):
                self.found.append((float(norm), record, None, (slot,) if slot else ()))
                self.settle()
        elif order < self.order and (why := non_finite(tensor)):
            self.first, self.order = {"record": record, "slot": slot, "why": why}, order

    def settle(self) -> None:
        """Keep the largest of the norms in ``found``."""
        with self._lock:
            count = len(self.found)  # more may come meanwhile
            # Largest first, equal norms as they came: the first that is too small ends the search.
            for norm, record, label, path in sorted(self.found[:count], key=itemgetter(0), reverse=True):
                if norm <= self.least:
                    break
                if norm in self.norms:
                    continue
                slot = slot_of(label, path)
                self.norms[norm] = f"{record}.{slot}" if slot else record
                if len(self.norms) > LARGEST:
                    del self.norms[self.least]
                if len(self.norms) == LARGEST:
                    self.least = min(self.norms)
            del self.found[:count]

    def json(self) -> dict[str, Any]:
        """Return the keys for report.json."""
        self.settle()
        norms = [[name, norm] for norm, name in sorted(self.norms.items(), reverse=True)]
        return {"norms": norms, "first_non_finite": self.first}


def slot_of(label: str | None, path: ValuePath) -> str:
    """Return the slot, as ``input_args.0``, of the value at ``path`` in a part of a record.

    label: the part; None where the record is one value; empty where the record holds lists of values (parameters'
        gradients): of each the first is meant.
    """
    if label is not None:
        path = (label, *path) if label else (*path, 0)
    return ".".join(map(str, path))
