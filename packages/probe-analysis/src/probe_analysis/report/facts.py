"""Write the records of a run as columns for the HTML page: a description that several tensors have is there once."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field
from probe_format.errors import FormatError
from probe_format.excerpts import brief, cut
from probe_format.jsonio import number
from probe_format.read import Loss
from probe_format.schema import Parts, broken, parts_of
from probe_format.statistics import NOT_FINITE, WHOLE
from probe_format.values import plain

from probe_analysis.calls.run import Call
from probe_analysis.compare.distance import as_float
from probe_analysis.compare.dtypes import dtype_name
from probe_analysis.compare.estimates import SIDES
from probe_analysis.nonfinite.lookout import Lookout

from .page import Numbering, numbers, whole

#: What only a tensor's file has; tensors that differ in nothing else are described alike.
_FILE = {"data_name", "data_crc32"}
#: Keys that are told by a column, or are not told.
_TOLD = {*WHOLE, *NOT_FINITE, "type", "dtype", "shape", "md5", "sketch", "requires_grad", *_FILE}

# Of what kind a statistic is: two bits for each statistic in the column `marks`.
_NUMBER, _ABSENT, _BOOL, _TEXT = range(4)
_SAVED, _GRAD = 1 << 8, 1 << 9


@define(eq=False)
class Facts:
    """Give each different description of a tensor a number, and hold each once, as a row of the columns.

    exact: (number of the description, number of the statistic, text) of each whole number that float64 does not hold.
    """

    texts: Numbering
    _known: Numbering = field(factory=Numbering, repr=False)
    _statistics: tuple[list[float], ...] = field(factory=lambda: ([], [], [], []), repr=False)
    _marks: list[int] = field(factory=list, repr=False)
    _words: dict[str, list[int]] = field(
        factory=lambda: {key: [] for key in ("dtype", "shape", "broken", "md5", "more")}, repr=False
    )
    exact: list[tuple[int, int, str]] = field(factory=list, repr=False)

    def of(self, tensor: Mapping[str, Any]) -> int:
        """Return the number of a tensor's description; a new one gets the next."""
        told = (value for name, value in tensor.items() if name not in _FILE)
        # 1, 1.0 and True are equal in Python, but not in a dump.
        values = [value if type(value) in (float, str) else repr(value) for value in told]
        found = self._known[*values, *tensor]
        if found == len(self._marks):
            self._add(tensor)
        return found

    def _add(self, tensor: Mapping[str, Any]) -> None:
        marks = _SAVED * ("data_name" in tensor) | _GRAD * (tensor.get("requires_grad") is True)
        for i, (name, column) in enumerate(zip(WHOLE, self._statistics, strict=True)):
            mark, value = self._statistic(i, number(tensor.get(name)))
            marks |= mark << 2 * i
            column.append(value)
        self._marks.append(marks)
        checksum = tensor.get("md5")
        sizes = (str(n) if type(n) is int and n < 1 << 63 else brief(n) for n in tensor["shape"])
        for name, text in (
            ("dtype", dtype_name(str(tensor["dtype"]))),
            ("shape", cut("x".join(sizes), 200) or "scalar"),
            ("broken", broken(tensor)),
            ("md5", checksum if isinstance(checksum, str) else ""),
            ("more", _more(tensor)),
        ):
            self._words[name].append(self.texts[text])

    def _statistic(self, which: int, value: Any) -> tuple[int, float]:
        """Return (what it is, the nearest number) of a statistic."""
        if isinstance(value, bool):
            return _BOOL, float(value)
        if isinstance(value, int):
            near = as_float(value) or 0.0
            if near == value:
                return _NUMBER, near
            self.exact.append((len(self._marks), which, brief(value)))
            return _TEXT, near
        return (_NUMBER, value) if isinstance(value, float) else (_ABSENT, math.nan)

    def columns(self) -> dict[str, Any]:
        return {
            **{name: numbers(column) for name, column in zip(WHOLE, self._statistics, strict=True)},
            "marks": whole(self._marks),
            **{name: whole(column) for name, column in self._words.items()},
            "exact": [list(each) for each in self.exact],
        }


def _more(tensor: Mapping[str, Any]) -> str:
    """Return in words what else is said about a tensor: its type where it is no plain tensor, placements, zeros."""
    kind = str(tensor["type"])
    words = [] if kind in ("torch.Tensor", "mindspore.Tensor") else [kind]
    more = [f"{key} {_text(value, 200, 100)}" for key, value in tensor.items() if key not in _TOLD]
    return ", ".join(words + more)


#: How many arguments of one call that are no tensors are in the page.
_ARGUMENTS = 60
_NOT_RECORDED = "was seen and not recorded: a filter of the configuration leaves it out"


@define(eq=False)
class RecordColumns:
    """Collect the records of a run, to be written in the order of the tree.

    error: why a record could not be read; None where all could be.
    slots, sides, facts: of all tensors, in the order in which their records were read.
    """

    texts: Numbering
    known: Facts
    lookout: Lookout
    error: FormatError | None = None
    slots: array[int] = field(factory=lambda: array("q"))
    sides: array[int] = field(factory=lambda: array("q"))
    facts: array[int] = field(factory=lambda: array("q"))
    _places: dict[str, tuple[int, int, int, int]] = field(factory=dict, repr=False)

    def take(self, call: Call, record: Any, parts: Parts) -> None:
        """Take what is in a call's record. record: as it is in the file."""
        if call.name not in self._places:  # a dump may be compared with itself
            self._take(call.name, parts, _note(record, call.rank.lost.of(call.name)))
            self.lookout.look(call, parts)

    def of(self, name: str, call: Call | None) -> tuple[int, int, int, int]:
        """Return (first tensor, the one after its last, text of the note, text of the arguments) of a line of the tree.

        call: None where it has no record. A record that was not taken yet is read.
        """
        if name not in self._places:
            if call is None:
                self._take(name, Parts((), ()), _NOT_RECORDED)
            else:
                try:
                    record = call.record.json
                    self.take(call, record, parts_of(record))
                except FormatError as error:
                    self.error = self.error or error
                    self._take(name, Parts((), ()), f"cannot be read: {error}")
        return self._places[name]

    def _take(self, name: str, parts: Parts, note: str) -> None:
        begin = len(self.slots)
        for value in parts.values:
            self.slots.append(self.texts[value.slot])
            self.sides.append(SIDES.index(value.side))
            self.facts.append(self.known.of(value.tensor))
        self._places[name] = begin, len(self.slots), self.texts[note], self.texts[_arguments(parts)]


_NOTES = {
    "incomplete": "the process ended inside of it",
    "recompute": "activation checkpointing ran it again",
    "in_backward": "called while a backward pass ran",
    "later_passes": "more than one backward pass reached it; this is the first",
    "partial": "a gradient of its inputs is not whole: a use was not reached, or the call returns the input too",
}


def _note(record: Any, lost: Sequence[Loss]) -> str:
    notes = [f"{loss.slot or 'value'} is lost: {loss.why}" for loss in lost]
    record = record if isinstance(record, dict) else {}
    if record.get("label"):
        notes.append(f"label {_text(record['label'])}")
    if record.get("raised"):
        notes.append(f"ended in an exception: {_text(record['raised'])}")
    again = "recompute"  # told as well where nothing was recorded of it
    notes += [what for key, what in _NOTES.items() if record.get(key) or (key == again and key in record)]
    return "; ".join(notes)


def _arguments(parts: Parts) -> str:
    lines = [f"{slot} = {_text(plain(value))}" for slot, value in parts.others[:_ARGUMENTS]]
    more = len(parts.others) - len(lines)
    return "\n".join(lines + ([f"... and {more} more"] if more else []))


def _text(value: Any, longest: int = 300, most: int = 300) -> str:
    return value if isinstance(value, str) and len(value) < longest else brief(value, most)
