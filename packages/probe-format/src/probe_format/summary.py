"""What a person asks first of a dump: the largest norms, and the first number that is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from .jsonio import number

__all__ = ["LARGEST", "Summary"]

#: How many norms are kept.
LARGEST = 5


@define
class Summary:
    """Keeps the extremes while tensors go by. complete: False when some had no numbers yet (``$``)."""

    complete: bool = True
    norms: dict[str, float] = field(factory=dict)
    least: float = -1.0
    first: dict[str, str] | None = None

    def add(self, record: str, slot: str, tensor: Mapping[str, Any]) -> None:
        """One tensor object (spec/statistics.md) at ``slot`` (``output.0``) of a record."""
        if "$" in tensor:
            self.complete = False
            return
        norm = number(tensor.get("Norm"))
        if norm is None:
            return
        if norm - norm == 0:
            if norm > self.least:
                self._keep(f"{record}.{slot}", float(norm))
        elif self.first is None and _not_finite(tensor):
            self.first = {"record": record, "slot": slot, "why": _why(tensor)}

    def _keep(self, name: str, norm: float) -> None:
        self.norms[name] = norm
        if len(self.norms) > LARGEST:
            del self.norms[min(self.norms, key=self.norms.__getitem__)]
            self.least = min(self.norms.values())

    def json(self) -> dict[str, Any]:
        """The keys of report.json."""
        ranked = sorted(self.norms.items(), key=lambda item: -item[1])
        return {
            "norms": [[name, norm] for name, norm in ranked],
            "first_non_finite": self.first,
        }


def _not_finite(tensor: Mapping[str, Any]) -> bool:
    if "nan_count" in tensor:
        return True
    return any(isinstance(x, float) and not math.isfinite(x) for x in map(number, _four(tensor)))


def _four(tensor: Mapping[str, Any]) -> list[Any]:
    return [tensor.get(key) for key in ("Max", "Min", "Mean", "Norm")]


def _why(tensor: Mapping[str, Any]) -> str:
    parts = [
        f"{tensor[key]} {word}"
        for key, word in (("nan_count", "NaN"), ("posinf_count", "+Inf"), ("neginf_count", "-Inf"))
        if tensor.get(key)
    ]
    return ", ".join(parts) or f"Max {tensor.get('Max')}, Min {tensor.get('Min')}"
