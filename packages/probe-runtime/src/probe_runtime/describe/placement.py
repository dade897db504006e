"""Where a value that is being described stands in its record."""

from __future__ import annotations

from typing import Any

from attrs import define, field
from probe_format.values import ValuePath

__all__ = ["Slot"]


@define
class Slot:
    """Where a described value stands: its record, its category (``input``), and whether a file is wanted.

    show: False when only the tensors are looked for and nothing is said about them. found collects (path,
    tensor) of every tensor met on the way. shown: the category as the record names it (``input_args``).
    """

    record: str
    category: str
    file: bool
    show: bool = True
    shown: str = ""
    found: list[tuple[ValuePath, Any]] = field(factory=list)
