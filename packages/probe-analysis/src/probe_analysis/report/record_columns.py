"""Write what is in the records of a run as columns, each record once, in whatever order they are read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from attrs import define, field
from probe_format.errors import FormatError
from probe_format.excerpts import brief
from probe_format.read import Loss
from probe_format.schema import Parts, parts_of
from probe_format.values import plain

from probe_analysis.calls.run import Call
from probe_analysis.nonfinite.watch import Watch

from .facts import Facts
from .page import Numbering

SIDES = ("in", "parameter", "out")
#: How many arguments of one call that are no tensors are in the page.
_ARGUMENTS = 60
_NOT_RECORDED = "was seen and not recorded: a filter of the configuration leaves it out"


@define(eq=False)
class RecordColumns:
    """Collect the records of a run, to be written in the order of the tree.

    watch: looks at each for what is not finite.
    error: why a record could not be read; None where all could be.
    slots, sides, facts: of all tensors, in the order in which their records were read.
    """

    texts: Numbering
    known: Facts
    watch: Watch
    error: FormatError | None = None
    slots: array[int] = field(factory=lambda: array("q"))
    sides: array[int] = field(factory=lambda: array("q"))
    facts: array[int] = field(factory=lambda: array("q"))
    _places: dict[str, tuple[int, int, int, int]] = field(factory=dict, repr=False)

    def take(self, call: Call, record: Any, parts: Parts) -> None:
        """Take what is in a call's record. record: as it is in the file."""
        if call.name not in self._places:  # a dump may be compared with itself
            self._take(call.name, parts, _note(record, call.rank.lost.of(call.name)))
            self.watch.look(call, parts)

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
    """Return the arguments that are no tensors, one a line."""
    lines = [f"{slot} = {_text(plain(value))}" for slot, value in parts.others[:_ARGUMENTS]]
    more = len(parts.others) - len(lines)
    return "\n".join(lines + ([f"... and {more} more"] if more else []))


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) < 300 else brief(value, 300)
