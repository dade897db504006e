"""Hold the calls of one rank of one step, in order, and the tree of modules that they were made in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from attrs import frozen
from probe_format import Dump, Rank, Record
from probe_format import open as open_dump
from probe_format.errors import FormatError
from probe_format.names import ApiName, ModuleName, ParamsGradName
from probe_format.schema import Parts

from .call import GRADIENTS, Call, Kind, ended_inside

#: A dump, or the path of one.
Source = str | Path | Dump
#: Called with what is read, how much of it was read, and how much there is.
Progress = Callable[[str, int, int], None]


@frozen(slots=False, eq=False)
class Run:
    """Give access to the calls of one rank of one step.

    label: ``step0/rank1``.
    rank: the rank that the calls are read from.
    """

    label: str
    rank: Rank

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """Return every record as a call, in the order of completion. Raises FormatError when a file is damaged."""
        parents = self.rank.construct.parents
        counts: dict[tuple[str, str, str, bool], int] = {}
        found = []
        for order, record in enumerate(self.rank.records):
            kind, what, path, backward = _described(record)
            parent = parents.get(record.name)
            if kind == "api" and parent is not None:
                path = ".".join(parent.split(".")[1:-3])  # empty for a node that is not a module
            key = (kind, what, path, backward)
            count = counts.get(key, 0)
            counts[key] = count + 1
            found.append(Call(record.name, kind, backward, what, path, count, parent, order, self.rank))
        return tuple(found)

    @cached_property
    def by_name(self) -> dict[str, Call]:
        return {call.name: call for call in self.calls}

    def read(self, call: Call) -> Parts:
        """Return the tensors of a call, and its other arguments. Raises DamagedError when it is not valid JSON."""
        return call.read()

    def ended_inside(self, call: Call) -> bool:
        """Return whether, in a run that was cut, the process ended inside of a call: what it returned is not there."""
        return ended_inside(call, call.record.json)

    @property
    def framework(self) -> str:
        """Return ``pytorch`` or ``mindspore``; empty where the dump does not say."""
        return str(self.rank.header.get("framework") or "")

    def is_across(self, other: Run) -> bool:
        """Return whether two runs are of two frameworks, as far as both say which."""
        return bool(self.framework and other.framework and self.framework != other.framework)

    @cached_property
    def was_cut(self) -> bool:
        """Return whether the process was killed, or is still running, so that the end of the step is not there."""
        try:
            report = self.rank.report
        except FormatError:
            report = None
        return (
            self.rank.source == "journal"
            or self.rank.is_empty
            or (report is not None and report.state != "complete")
        )

    @cached_property
    def open(self) -> str | None:
        """Return, of a run that was cut, the last parameters' gradients: which of them were to come is not known."""
        gradients = (call.name for call in reversed(self.calls) if call.kind in GRADIENTS)
        return next(gradients, "") if self.was_cut else None

    @property
    def one_slot_per_argument(self) -> bool:
        """Return whether a function's backward record has one gradient for each argument, as Probe's format says.

        msprobe's for PyTorch has them as autograd does: other orders, transposed weights, fewer than the arguments.
        """
        return self.framework != "pytorch" or "format_version" in self.rank.header


def runs_of(dump: Source, *, step: int | None = None, rank: int | None = None) -> Iterator[Run]:
    """Yield the runs of a dump, rank after rank of each step.

    step, rank: only these; None for all.
    Raises FormatError when there is no dump, or it has no such step or rank.
    """
    opened = dump if isinstance(dump, Dump) else open_dump(dump)
    chosen = [r for r in opened.ranks if step in (None, r.step) and rank in (None, r.number)]
    if not chosen:
        there = ", ".join(sorted({r.label for r in opened.ranks}))
        asked = " and ".join(f"{what} {n}" for what, n in (("step", step), ("rank", rank)) if n is not None)
        raise FormatError(f"{opened.path} has no {asked}; it has {there}.")
    return (Run(r.label, r) for r in chosen)


def _described(record: Record) -> tuple[Kind, str, str, bool]:
    """Return (kind, what, path, whether backward) of a record; an unknown name is that of a saved value."""
    try:
        name = record.parsed
    except FormatError:
        return "debug", record.name, "", False
    if isinstance(name, ModuleName):
        return "module", name.cls, name.path, name.direction == "backward"
    if isinstance(name, ApiName):
        return "api", name.api, "", name.direction == "backward"
    if isinstance(name, ParamsGradName):
        return name.moment, name.cls, name.path, True
    return "debug", str(name), "", False
