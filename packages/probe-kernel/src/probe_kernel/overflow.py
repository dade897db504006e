"""Overflow files (``Opdebug.Node_OpDebug....output.0.json``): which task overflowed, and where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from probe_format.dump import parse_object

from .filename import FileName

__all__ = ["Overflow", "read_overflow"]


@frozen
class Overflow:
    """One overflow file. task, stream: of the operator that overflowed, where a unit reports a status.

    units: what each unit (``AI Core``, ``DHA Atomic Add``, ``L2 Atomic Add``) says, as in the file.
    """

    path: Path
    timestamp: int
    units: Mapping[str, Any]

    @property
    def tasks(self) -> tuple[tuple[int, int], ...]:
        """(task, stream) of each unit whose status is not 0: those of the kernels that overflowed."""
        found = []
        for unit in self.units.values():
            if isinstance(unit, Mapping) and unit.get("status"):
                task, stream = unit.get("task_id"), unit.get("stream_id")
                if isinstance(task, int) and isinstance(stream, int):
                    found.append((task, stream))
        return tuple(dict.fromkeys(found))


def read_overflow(path: Path, name: FileName) -> Overflow:
    """Read one file. Raises FormatError when it is not a JSON object, OSError when it cannot be opened."""
    return Overflow(path, name.timestamp or 0, parse_object(path.read_bytes(), str(path)))
