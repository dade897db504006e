"""Summarise a dump: the largest norms, and the first number that is not finite."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from probe_format.jsonio import number
from probe_format.schema.finite import non_finite

__all__ = ["LARGEST", "Summary", "is_whole"]

#: How many norms are kept.
LARGEST = 5


@define
class Summary:
    """Keep the extremes of the tensors of a step. Safe to use from many threads.

    norms: each with the first slot that had it, as a tensor that is passed on has many.
    least: the smallest of them once there are `LARGEST`, -1 before.
    first: the first tensor that is not finite, and ``order``, its place among all.
    """

    norms: dict[float, str] = field(factory=dict)
    least: float = -1.0
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
                self.keep(f"{record}.{slot}" if slot else record, float(norm))
        elif order < self.order and (why := non_finite(tensor)):
            self.first, self.order = {"record": record, "slot": slot, "why": why}, order

    def keep(self, name: str, norm: float) -> None:
        """Keep a finite norm of floats that is over ``least``. name: its record and slot."""
        with self._lock:
            if norm <= self.least or norm in self.norms:
                return
            self.norms[norm] = name
            if self.least >= 0.0:
                del self.norms[self.least]
            elif len(self.norms) < LARGEST:
                return
            self.least = min(self.norms)

    def json(self) -> dict[str, Any]:
        """Return the keys for report.json."""
        return {
            "norms": [[name, norm] for norm, name in sorted(self.norms.items(), reverse=True)],
            "first_non_finite": self.first,
        }


def is_whole(dtype: object) -> bool:
    """Return whether a dtype is integer or boolean: the norm of token numbers and masks means nothing."""
    return str(dtype).rpartition(".")[2].lower().startswith(("int", "uint", "bool"))
