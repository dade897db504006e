"""What a framework brings to describe its tensors."""

from __future__ import annotations

from typing import Any, Protocol

from probe_format.values import ValuePath
from probe_format.write import Summary

__all__ = ["Leaf"]


class Leaf(Protocol):
    """A framework's tensors as JSON, with their statistics and files."""

    @property
    def tally(self) -> dict[str, int]:
        """Tensors seen so far."""

    @property
    def summary(self) -> Summary:
        """What the report says about the numbers."""

    def leaf(self, slot: Any, value: Any, path: ValuePath) -> Any:
        """JSON of a value of the framework, else `tree.UNKNOWN`; tensors are noted in ``slot.found``."""

    def tensor(self, slot: Any, t: Any, path: ValuePath) -> dict[str, Any]:
        """The tensor object of ``t``; writes its file when the slot wants one."""

    def invalidate(self) -> None:
        """Tensors may have changed unseen: share nothing seen before."""

    def flush_numbers(self) -> None:
        """Write numbers that were waited for, if there are enough of them."""

    def flush(self) -> None:
        """Everything that was begun is on disk when this returns."""

    def close(self) -> None:
        """Let go of everything."""
