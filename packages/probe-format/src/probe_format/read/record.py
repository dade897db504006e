"""Read one rank's records and their tensors lazily, without a framework; tell what is lost of them (spec/values.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal

from attrs import field, frozen

from probe_format import names
from probe_format.errors import FormatError
from probe_format.excerpts import cut
from probe_format.jsonio import meant
from probe_format.schema.dump import Document
from probe_format.schema.form import path_text
from probe_format.schema.parts import Side, side_of
from probe_format.schema.tensor_objects import is_tensor, others, tensors, why_lost
from probe_format.suggest import did_you_mean

from .tensor import Tensor

if TYPE_CHECKING:
    from .dump import Rank


@frozen(repr=False)
class Records:
    """Give access to the records of one rank, in order: iterate, or look one up by its name."""

    rank: Rank
    _documents: tuple[Document, ...]

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.rank.path}>"

    def __iter__(self) -> Iterator[Record]:
        return (Record(name, self.rank, each) for each in self._documents for name in each.records)

    def __len__(self) -> int:
        return sum(len(each.records) for each in self._documents)

    def __contains__(self, name: str) -> bool:
        return any(name in each.records for each in self._documents)

    def __getitem__(self, name: str) -> Record:
        if not isinstance(name, str):
            raise KeyError(f"Records are looked up by name, not by {name!r}; `names` lists them.")
        found = self.get(name)
        if found is not None:
            return found
        raise KeyError(f"There is no record {name!r}. {did_you_mean(name, self.names)}".rstrip())

    def get(self, name: str) -> Record | None:
        """Return the record of this name, or None."""
        return next((Record(name, self.rank, each) for each in self._documents if name in each.records), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the records, in order, without parsing them."""
        return tuple(name for each in self._documents for name in each.records)


@frozen(slots=False, eq=False)
class Record:
    """Give access to one record: a forward or backward call, a module's parameter gradients, or a saved value."""

    name: str
    rank: Rank = field(repr=False)
    _document: Document = field(repr=False)

    @cached_property
    def json(self) -> Any:
        """Return the record as it is in the file. Raises DamagedError when it cannot be read (`Document.record`)."""
        return self._document.record(self.name)

    @property
    def parsed(self) -> names.Name:
        """Return the parts of the name. Raises FormatError when neither Probe nor msprobe writes such names."""
        saved = self._document.header.get("level") == "debug"  # msprobe 1.2 writes its names in another form
        return names.parse_debug_name(self.name) if saved else names.parse_name(self.name)

    @property
    def kind(self) -> Literal["forward", "backward", "parameters_grad", "optimizer_grad", "debug"]:
        """Return what was recorded. Raises FormatError when the name is unknown."""
        parsed = self.parsed
        if isinstance(parsed, names.ApiName | names.ModuleName):
            return parsed.direction
        return parsed.moment if isinstance(parsed, names.ParamsGradName) else "debug"

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Return every tensor and numpy array in the record, in the order of the file."""
        return tuple(Tensor(self, keys, node) for keys, node in tensors(self.json))

    def tensor(self, at: str) -> Tensor:
        """Return the tensor in one slot, as ``record.tensor("input_args.0")``.

        Raises KeyError, naming the slots, when the record has no tensor there.
        """
        for tensor in self.tensors:
            if tensor.slot == at:
                return tensor
        why = "".join(f" (it is lost: {x.why})" for x in self.rank.lost.of(self.name) if x.slot == at)
        raise KeyError(f"{self.name} has no tensor at {at!r}{why}; it has {[t.slot for t in self.tensors]}.")

    @property
    def label(self) -> str | None:
        """Return the label that the script gave the call, or the call of these gradients; None where it had none."""
        forward = names.with_direction(self.name, "forward")
        call = self if forward == self.name else self.rank.records.get(forward)
        found = call.json.get("label") if call is not None and isinstance(call.json, dict) else None
        return meant(found) if isinstance(found, str) else None

    @property
    def stack(self) -> tuple[str, ...]:
        """Return where the call was made, innermost frame first; empty when that was not recorded."""
        return self.rank.stack.of(self.name)

    @property
    def parent(self) -> str | None:
        """Return the module call around this one; None at the top, and where that was not recorded."""
        return self.rank.construct.parents.get(self.name)


_TOLD = 3


@frozen
class Loss:
    """Say why the value of a slot, or the file of its tensor, is lost.

    slot, side: as in `probe_format.schema.parts.Value`.
    known: whether the tensor's numbers are known: then its file alone is lost.
    """

    slot: str
    side: Side
    why: str
    known: bool


@frozen
class Lost:
    """Hold what is lost of each record. ``str`` says how much in all, and names the first few with the reasons.

    records: name -> what is lost of it.
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
        """Return what is lost of one record."""
        return self.records.get(name, ())

    def given(self, name: str) -> str:
        """Return words to add where a message says that a call's inputs are finite: which of them are lost."""
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
