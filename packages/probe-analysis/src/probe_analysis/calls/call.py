"""Hold one call of a run as an analysis sees it: what it was, where it was made, what went in and what came out."""

from __future__ import annotations

from typing import Any, Literal

from attrs import frozen
from probe_format import Rank, Record
from probe_format.schema import Parts, others, parts_of, why_lost

__all__ = ["Call", "Kind", "ended_inside"]

Kind = Literal["module", "api", "parameters_grad", "debug"]


@frozen(eq=False)
class Call:
    """Hold one record of a run.

    name: the name of the record.
    kind: what was called or recorded.
    backward: whether it is a backward record.
    what: the API's or the class's name, as ``linear`` or ``Linear``.
    path: the qualified name of the module; for an API call that of the module around it, empty at the top.
    count: how many records of the same key came before.
    parent: the name of the module call around it; None at the top.
    order: its place among the records of the rank, which is the order of completion.
    """

    name: str
    kind: Kind
    backward: bool
    what: str
    path: str
    count: int
    parent: str | None
    order: int
    rank: Rank

    @property
    def record(self) -> Record:
        """Return the record, read anew from the file: a dump may be larger than the memory."""
        return self.rank.records[self.name]

    def read(self) -> Parts:
        """Return its tensors and its other arguments. Raises DamagedError when its line is not valid JSON."""
        return parts_of(self.record.json)


def ended_inside(call: Call, record: Any) -> bool:
    """Return whether the process of a run that was cut ended inside of a call. record: the call's, as in the file."""
    if not isinstance(record, dict):
        return False
    # A backward call is written when it begins. Journals of version 1 did not mark what had not come by then.
    blank = call.backward and call.kind == "module" and not parts_of(record).side("out")
    return bool(record.get("incomplete")) or blank or any(why_lost(leaf) for _, leaf in others(record))
