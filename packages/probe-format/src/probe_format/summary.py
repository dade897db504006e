"""What a person asks first of a dump: the largest norms, and the first number that is none."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from .jsonio import number

__all__ = ["LARGEST", "Summary"]

#: How many norms are kept.
LARGEST = 5


@define
class Summary:
    """Keeps the extremes while tensors go by. Safe to use from many threads.

    complete: False when some tensors had no numbers yet (``$``).
    """

    complete: bool = True
    norms: dict[str, float] = field(factory=dict)
    least: float = -1.0
    first: dict[str, str] | None = None
    _lock: threading.Lock = field(factory=threading.Lock, repr=False, eq=False)

    def add(self, record: str, slot: str, tensor: Mapping[str, Any]) -> None:
        """One tensor object (spec/statistics.md) at ``slot`` (``output.0``, empty: all of it) of a record."""
        if "$" in tensor:
            self.complete = False
            return
        norm = number(tensor.get("Norm"))
        if norm is None:
            return
        if norm - norm == 0:
            if norm > self.least:
                self._keep(f"{record}.{slot}" if slot else record, float(norm))
        elif self.first is None:
            self.first = {"record": record, "slot": slot, "why": _why(tensor)}

    def _keep(self, name: str, norm: float) -> None:
        with self._lock:
            self.norms[name] = max(norm, self.norms.get(name, 0.0))
            if len(self.norms) > LARGEST:
                del self.norms[min(self.norms, key=self.norms.__getitem__)]
            if len(self.norms) == LARGEST:
                self.least = min(self.norms.values())

    def json(self) -> dict[str, Any]:
        """The keys of report.json."""
        ranked = sorted(self.norms.items(), key=lambda item: -item[1])
        return {
            "norms": [[name, norm] for name, norm in ranked],
            "first_non_finite": self.first,
        }


def _why(tensor: Mapping[str, Any]) -> str:
    parts = [
        f"{tensor[key]} {word}"
        for key, word in (("nan_count", "NaN"), ("posinf_count", "+Inf"), ("neginf_count", "-Inf"))
        if tensor.get(key)
    ]
    return ", ".join(parts) or f"Max {tensor.get('Max')}, Min {tensor.get('Min')}"
