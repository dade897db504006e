"""Select the records of a dump that ``probe show`` prints."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from probe_format.names import ModuleName, ParamsGradName, is_name, parse_name
from probe_format.read.record import Record


@frozen
class View:
    """Select what `summary` and `tree` show.

    filter: only records with this in their name.
    level: only modules (``L0``) or only API calls (``L1``).
    depth: levels of nesting, None for all.
    bad: only records with a value that is not finite.
    brief: names without their tensors.
    stack: with the caller's line.
    full: with max and min, and with arguments that are not tensors.
    """

    filter: str = ""
    level: Literal["L0", "L1"] | None = None
    depth: int | None = None
    bad: bool = False
    brief: bool = False
    stack: bool = False
    full: bool = False

    def takes(self, record: Record) -> bool:
        """Return whether a record is shown for itself, rather than as the parent of one."""
        return self.takes_name(record.name) and (
            not self.bad or any(tensor.non_finite for tensor in record.tensors)
        )

    def takes_name(self, name: str) -> bool:
        """Return whether the name alone allows the record to be shown."""
        parsed = parse_name(name) if is_name(name) else None
        level = "L0" if isinstance(parsed, ModuleName | ParamsGradName) else "L1"
        return self.filter in name and self.level in (None, level)
