"""Tell what the records of a rank lack because it is lost: gradients, and the files of tensors (spec/values.md)."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice

from attrs import frozen

from probe_format.errors import FormatError
from probe_format.excerpts import cut
from probe_format.schema.dump import Document
from probe_format.schema.parts import Side, side_of
from probe_format.schema.tensor_objects import is_tensor, others, path_text, tensors, why_lost

_TOLD = 3


@frozen
class Loss:
    """Say why the value of a slot is lost; where its numbers are known, why its file is. slot, side: as in `Value`."""

    slot: str
    side: Side
    why: str
    known: bool


@frozen
class Lost:
    """Hold what is lost, by record: as text how much, and the first of it with the reasons.

    empty: whether the run ended before its first record.
    """

    records: Mapping[str, Sequence[Loss]]
    empty: bool = False

    def __bool__(self) -> bool:
        return self.empty or bool(self.records)

    def __str__(self) -> str:
        if self.empty:
            return "empty: the run ended before its first record"
        each = ((f"{name} {loss.slot}".strip(), loss.why) for name in self.records for loss in self.of(name))
        told = ", ".join(f"{place} ({cut(why, 200)})" for place, why in islice(each, _TOLD))
        count = sum(map(len, self.records.values()))
        return f"{count} lost: {told}" + (", ..." if count > _TOLD else "")

    def of(self, name: str) -> Sequence[Loss]:
        """Return what of one record is lost."""
        return self.records.get(name, ())

    def given(self, name: str) -> str:
        """Return what is to be added where the inputs of a call are said to be finite: which are not known."""
        slots = [each.slot for each in self.of(name) if each.side == "in" and not each.known]
        return f", but for what is lost ({', '.join(slots)})" if slots else ""


def lost_in(documents: Iterable[Document], *, empty: bool) -> Lost:
    """Return what is lost in a rank's documents. Records that are damaged are passed over. empty: as in `Lost`."""
    found: dict[str, list[Loss]] = {}
    for document in documents:
        for name in document.mentioning(b'"lost"'):
            with suppress(FormatError):
                record = document.records[name]
                for keys, leaf in chain(tensors(record), others(record)):
                    if why := why_lost(leaf):
                        loss = Loss(path_text(keys), side_of(keys), why, is_tensor(leaf))
                        found.setdefault(name, []).append(loss)
    return Lost(found, empty)
