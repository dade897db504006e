"""Summarise a dump: the largest norms, and the first number that is not finite."""

import math
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import define, field

from probe_format.jsonio import number
from probe_format.schema.finite import non_finite
from probe_format.values import ValuePath

#: How many norms are kept.
LARGEST = 5


@define
class Summary:
    """Keep the extremes of the tensors of a step. Safe to use from many threads.

    norms: each with the first slot that had it, as a tensor that is passed on has many.
    least: the smallest of them once there are `LARGEST`, -1 before.
    found: finite norms of floats over ``least`` that came since `settle`: (norm, record, label and path for `slot_of`).
        Whoever adds to it calls `settle` when there are more than ``MANY``.
    first: the first tensor that is not finite, and ``order``, its place among all.
    """

    MANY: ClassVar[int] = 64

    norms: dict[float, str] = field(factory=dict)
    least: float = -1.0
    found: list[tuple[float, str, str | None, ValuePath]] = field(factory=list)
    first: dict[str, str] | None = None
    order: float = math.inf
    _lock: threading.Lock = field(factory=threading.Lock, repr=False, eq=False)

    def add(self, record: str, slot: str, tensor: Mapping[str, Any], order: float = 0) -> None:
        """Add one tensor object (spec/statistics.md) of a record.

        slot: its place in the record, as ``output.0``; empty for the whole record.
        order: its place among all tensors, where they do not come in their order.
        """
        norm = number(tensor.get("Norm"))
        if norm is None:
            return
        if norm - norm == 0:
            if norm > self.least and not is_whole(tensor.get("dtype")):
                if self.found:  # they came before
                    self.settle()
                with self._lock:
                    self._keep(record, slot, float(norm))
        elif order < self.order and (why := non_finite(tensor)):
            self.first, self.order = {"record": record, "slot": slot, "why": why}, order

    def settle(self) -> None:
        """Keep the largest of the norms in ``found``."""
        with self._lock:
            count = len(self.found)  # more may come meanwhile
            for norm, record, label, path in self.found[:count]:
                self._keep(record, slot_of(label, path), norm)
            del self.found[:count]

    def _keep(self, record: str, slot: str, norm: float) -> None:
        if norm <= self.least or norm in self.norms:
            return
        self.norms[norm] = f"{record}.{slot}" if slot else record
        if self.least >= 0.0:
            del self.norms[self.least]
        elif len(self.norms) < LARGEST:
            return
        self.least = min(self.norms)

    def json(self) -> dict[str, Any]:
        """Return the keys for report.json."""
        self.settle()
        return {
            "norms": [[name, norm] for norm, name in sorted(self.norms.items(), reverse=True)],
            "first_non_finite": self.first,
        }


def slot_of(label: str | None, path: ValuePath) -> str:
    """Return the place in a record of what is at ``path`` of one of its parts, as ``input_args.0``.

    label: the part; None for a record that is one value, empty for one of lists of values.
    """
    shown: tuple[int | str, ...] = path
    if label is not None:
        shown = (label, *path) if label else (*path, 0)
    return ".".join(map(str, shown))


def is_whole(dtype: object) -> bool:
    """Return whether a dtype is integer or boolean: the norm of token numbers and masks means nothing."""
    return str(dtype).rpartition(".")[2].lower().startswith(("int", "uint", "bool"))
