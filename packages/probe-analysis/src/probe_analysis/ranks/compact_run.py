"""Read each record of a rank once, and keep what the comparison of ranks needs of it in little memory."""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen
from probe_format.read import Lost
from probe_format.schema import Parts, Side, Value, parts_of
from probe_format.statistics import WHOLE

from probe_analysis.calls.run import Call, Run, ended_inside

#: The keys of a tensor that hold numbers; all else is the same in many records, and on many ranks.
_NUMBERS = (*WHOLE, "md5")


@frozen(eq=False)
class RecordForm:
    """Hold all of a record but the numbers of its tensors.

    tensors: (slot, side, tensor without numbers, keys of its numbers that are floats, keys of the others).
    others: its arguments that are not tensors, as in `Parts`.
    positional, keywords: how many arguments the call got by position, and the names of the rest.
    ended_inside: of a run that was cut, what `probe_analysis.calls.ended_inside` says.
    """

    tensors: tuple[tuple[str, Side, Mapping[str, Any], tuple[str, ...], tuple[str, ...]], ...]
    others: tuple[tuple[str, Any], ...]
    positional: int
    keywords: tuple[str, ...]
    ended_inside: bool


@frozen(eq=False)
class Shared:
    """Hold what ranks have in common, each thing once: the forms of their records, and their lists of calls."""

    _forms: dict[bytes, RecordForm] = field(factory=dict)
    _calls: dict[tuple[tuple[str, str | None], ...], tuple[Call, ...]] = field(factory=dict)

    def form(self, *what: Any) -> RecordForm:
        key = marshal.dumps(what, 2)  # unlike JSON, it tells NaN from null
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = RecordForm(*what)
        return found

    def calls(self, run: Run) -> tuple[Call, ...]:
        """Return the calls of a run, which may be those of a rank that has made the same before."""
        parents = run.rank.construct.parents
        key = tuple((name, parents.get(name)) for document in run.rank.documents for name in document.records)
        found = self._calls.get(key)
        if found is None:
            rank = evolve(run.rank)  # without the file, which the run may have read
            found = self._calls[key] = tuple(evolve(call, rank=rank) for call in run.calls)
        return found


@frozen(slots=False, eq=False)
class CompactRun(Run):
    """Give access to the calls of one rank of one step, whose file is not kept.

    calls: every record as a call, in the order of completion. They may be another rank's, which has made the same: what
        this rank's records hold is read from here.
    was_cut: whether the end of the step is not there: the process was killed, an error ended it, or it runs on.
    _begin: where its floats begin among ``_floats``.
    _others: order -> its numbers that are no floats (of whole numbers, flags and checksums).
    """

    calls: tuple[Call, ...]
    lost: Lost
    was_cut: bool
    _forms: list[RecordForm] = field(factory=list)
    _begin: array[int] = field(factory=lambda: array("Q"))
    _floats: array[float] = field(factory=lambda: array("d"))
    _others: dict[int, list[Any]] = field(factory=dict)

    @classmethod
    def of(cls, run: Run, shared: Shared) -> CompactRun:
        """Read the records of a run, each once. Raises FormatError when a file is damaged."""
        reader = Run(run.label, evolve(run.rank))  # which holds the file, and goes
        # Not through `Rank.records`, which refers to the rank: in such a circle the file would stay for a while.
        names = [(each, name) for each in reader.rank.documents for name in each.records]
        cut = reader.was_cut or any(_raised(each.record(name)) for each, name in names[-1:])
        compact = cls(run.label, evolve(run.rank), shared.calls(reader), reader.rank.lost, cut)
        for call, (each, name) in zip(compact.calls, names, strict=True):
            record = each.record(name)
            compact._add(record, cut and (ended_inside(call, record) or _raised(record)), shared)
        return compact

    def _add(self, record: Any, inside: bool, shared: Shared) -> None:
        """Take in the next record, as it is in the file; its tensors lose their numbers."""
        parts, others = parts_of(record), list[Any]()
        self._begin.append(len(self._floats))
        tensors = []
        for value in parts.values:
            tensor: Any = value.tensor
            floats, rest = [], []
            for key in _NUMBERS:
                if key in tensor:
                    number = tensor.pop(key)
                    if type(number) is float:
                        floats.append(key)
                        self._floats.append(number)
                    else:
                        rest.append(key)
                        others.append(number)
            tensors.append((value.slot, value.side, tensor, tuple(floats), tuple(rest)))
        if others:
            self._others[len(self._forms)] = others
        known = record if isinstance(record, dict) else {}
        given, named = known.get("input_args"), known.get("input_kwargs")
        positional = len(given) if isinstance(given, list) else 0
        keywords = tuple(named) if isinstance(named, dict) else ()
        self._forms.append(shared.form(tuple(tensors), parts.others, positional, keywords, inside))

    def makes(self, call: Call) -> bool:
        """Return whether a call is of this rank, or is one that it shares with another."""
        return call.order < len(self.calls) and self.calls[call.order] is call

    def form(self, call: Call) -> RecordForm:
        """Return the form of this rank's record of a call that it `makes`."""
        if not self.makes(call):
            raise KeyError(f"{self.label} does not make {call.name} as number {call.order}.")
        return self._forms[call.order]

    def read(self, call: Call) -> Parts:
        """Return what is in this rank's record of a call that it `makes`."""
        form, numbers, at = self.form(call), self._floats, self._begin[call.order]
        others = iter(self._others.get(call.order, ()))
        values = []
        for slot, side, tensor, floats, rest in form.tensors:
            found = dict(tensor)
            for key in floats:
                found[key] = numbers[at]
                at += 1
            for key in rest:
                found[key] = next(others)
            values.append(Value(slot, side, found))
        return Parts(tuple(values), form.others)

    def ended_inside(self, call: Call) -> bool:
        """Return whether, in a run that was cut, the process ended inside of a call."""
        return self.form(call).ended_inside


def _raised(record: Any) -> bool:
    """Return whether an error of the run ended a call. record: the call's, as in the file."""
    why = record.get("raised") if isinstance(record, dict) else None
    return isinstance(why, str) and not why.startswith("Probe: ")
