"""Lay the tensors of runs with the same calls side by side, a row for each run, and find which rows hold the same.

Each tensor has a code, which is the same for equal tensors within this process.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import field, frozen
from probe_format.statistics import WHOLE

from probe_analysis.calls.compact_run import CompactRun, RecordForm, Tensors

from .held import Piles, lowest
from .marks import mark, telling, trusted

_FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], "uint64"
)
_LOW = np.uint64(32)
_MINUS_ZERO = np.float64(-0.0).tobytes()
#: In how many columns equal rows are searched at once: the search takes some times the memory of the columns.
_AT_ONCE = 512


@frozen(slots=False, eq=False)
class Layout:
    """Say which tensor of a run's records is in which column of a sheet.

    places: of each column, the order of the record, the slot, the side, and the tensor without numbers.
    of_record: the columns of each record.
    begin: where the floats of each column begin in a run. whole: the columns with four floats and nothing else.
    """

    places: Sequence[tuple[int, str, str, Mapping[str, Any]]]
    of_record: Sequence[range]
    begin: npt.NDArray[np.int64]
    whole: npt.NDArray[np.int64]

    @cached_property
    def at(self) -> Mapping[tuple[int, str], int]:
        """Return order and slot -> the column."""
        return {place[:2]: column for column, place in enumerate(self.places)}

    @cached_property
    def heads(self) -> list[tuple[str, str]]:
        """Return shape and dtype of each column, as `mark` has them."""
        return [(str(base["shape"]), base["dtype"]) for *_, base in self.places]

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Return how many elements each whole column has; -1 for a tensor without dimensions."""
        shapes = [self.places[column][3]["shape"] for column in self.whole]
        return np.array([math.prod(shape) if shape else -1 for shape in shapes], "int64")

    @cached_property
    def among_whole(self) -> frozenset[int]:
        return frozenset(self.whole.tolist())

    @cached_property
    def first_bytes(self) -> list[int]:
        """Return where the floats of each column begin, in bytes."""
        return [8 * begin for begin in self.begin.tolist()]

    @cached_property
    def others(self) -> list[int]:
        """Return the columns that are not whole."""
        return np.delete(np.arange(len(self.places)), self.whole).tolist()


@lru_cache(maxsize=4)
def _layout(records: tuple[Tensors, ...]) -> Layout:
    tensors = [x for record in records for x in record]
    places = [(order, *x[:3]) for order, record in enumerate(records) for x in record]
    ends = accumulate(map(len, records), initial=0)
    begin = np.cumsum([0, *(len(x[3]) for x in tensors)])[:-1]  # records come one after the other
    whole = np.flatnonzero([x[3] == WHOLE and not x[4] for x in tensors])
    return Layout(places, [range(i, j) for i, j in pairwise(ends)], begin, whole)


def _is_alike(one: RecordForm, two: RecordForm) -> bool:
    """Return whether two records have the same tensors, but for their numbers."""
    return one.tensors is two.tensors or [*one.tensors] == [*two.tensors]


def _is_same(one: RecordForm, two: RecordForm) -> bool:
    return one.others == two.others and _is_alike(one, two) and repr(one.others) == repr(two.others)


@frozen(slots=False, eq=False)
class Sheet:
    """Hold some runs that make the same calls. runs: each is a row; the tensors of the first are the columns."""

    runs: Sequence[CompactRun]
    _known: dict[int, int] = field(factory=dict, init=False)
    _marks: dict[Hashable, Hashable] = field(factory=dict, init=False)

    @cached_property
    def layout(self) -> Layout:
        return _layout(tuple(form.tensors for form in self.runs[0].forms))

    @cached_property
    def odd(self) -> Mapping[tuple[int, int], Mapping[str, Mapping[str, Any]]]:
        """Return row and order -> slot -> tensor, of records that have other tensors than in the first run."""
        first = self.runs[0]
        return {
            (row, order): {value.slot: value.tensor for value in run.read(run.calls[order]).values}
            for order in self.varied
            for row, run in enumerate(self.runs)
            if not _is_alike(first.forms[order], run.forms[order])
        }

    @cached_property
    def varied(self) -> list[int]:
        """Return the records that have several forms."""
        every = enumerate(zip(*(run.forms for run in self.runs), strict=True))
        several = ((order, pairwise({*forms})) for order, forms in every if len({*forms}) > 1)
        return [order for order, pairs in several if any(not _is_same(*pair) for pair in pairs)]

    @cached_property
    def _floats(self) -> Sequence[npt.NDArray[np.float64]]:
        return [*map(self._in_columns, self.runs)]

    @cached_property
    def _bytes(self) -> Sequence[memoryview]:
        """Return `_floats` as bytes: to take four floats out of an array takes three times as long."""
        return [floats.data.cast("B") for floats in self._floats]

    @cached_property
    def _four(self) -> npt.NDArray[np.int64]:
        """Return where the floats of whole columns are: column x statistic."""
        return self.layout.begin[self.layout.whole][:, None] + np.arange(len(WHOLE))

    def _in_columns(self, run: CompactRun) -> npt.NDArray[np.float64]:
        """Return the floats of a run where the first one has them."""
        first = self.runs[0]
        if run.begin == first.begin and len(run.floats) == len(first.floats):
            return np.asarray(run.floats)
        found = np.zeros(len(first.floats))
        for order, form in enumerate(first.forms):  # those that are odd are not looked at here
            size = min(form.counts[0], run.forms[order].counts[0])
            found[first.begin[order] :][:size] = run.floats[run.begin[order] : run.begin[order] + size]
        return found

    @cached_property
    def codes(self) -> npt.NDArray[np.uint64]:
        """Return row x column: a number that is the same for equal tensors; 0 where nothing tells them apart."""
        found = np.zeros((len(self.runs), len(self.layout.places)), "uint64")
        for codes, floats in zip(found, self._floats, strict=True):
            codes[self.layout.whole] = _coded(floats[self._four] + 0.0)  # -0.0 is 0.0
        for column in self.layout.others:
            found[:, column] = [_code(self.tensor(row, column)) for row in range(len(self.runs))]
        for row, order in self.odd:
            for column in self.layout.of_record[order]:
                found[row, column] = self._odd_code(row, column)
        return found

    def _odd_code(self, row: int, column: int) -> int:
        tensor, base = self.tensor(row, column) or {}, self.layout.places[column][3]
        same = all(tensor.get(key) == base.get(key) for key in ("shape", "dtype", "md5"))
        numbers = [tensor.get(key) for key in WHOLE]
        if same and {*map(type, numbers)} == {float}:
            return int(_coded(np.array(numbers, np.float64) + 0.0))
        return _code(tensor or None)

    def trusted(self, columns: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return row x column, of some columns: whether equal marks mean equal contents."""
        found, layout = np.zeros((len(self.runs), len(columns)), bool), self.layout
        asked = np.array(columns, "int64")
        whole = np.isin(asked, layout.whole)
        at = np.searchsorted(layout.whole, asked[whole])
        sizes = layout.sizes[at]
        for row, floats in zip(found, self._floats, strict=True):  # all at once take longer
            row[whole] = telling(floats[self._four[at]], sizes) & (sizes >= 0)
        rest = {(n, place) for n in range(len(found)) for place in np.flatnonzero(~whole).tolist()}
        if self.odd:
            among = {column: place for place, column in enumerate(columns)}
            odd = ((n, column) for n, order in self.odd for column in layout.of_record[order])
            rest.update((n, among[column]) for n, column in odd if column in among)
        for n, place in rest:
            tensor = self.tensor(n, columns[place])
            found[n, place] = tensor is not None and trusted(tensor)
        return found

    def tensor(self, row: int, column: int) -> Mapping[str, Any] | None:
        """Return the tensor of a run in a column; None where the run has none."""
        order, slot, *_ = self.layout.places[column]
        if (row, order) in self.odd:
            return self.odd[row, order].get(slot)
        return self.runs[row].tensor(order, column - self.layout.of_record[order].start)

    @cached_property
    def bits(self) -> list[int]:
        return [1 << (run.rank.number or 0) for run in self.runs]

    @cached_property
    def parts(self) -> Sequence[Sequence[int]]:
        """Return for each column the sets of rows that hold the same, as bits, that with the lowest row first."""
        return parts_in(self.codes)

    def piles(self, column: int, most: int, rows: int = -1) -> Piles:
        """Return which ranks hold which content in a column; None where there are more contents than ``most``.

        rows: as bits, to look at these alone.
        """
        parts = [some for part in self.parts[column] if (some := part & rows)]
        if len(parts) > most:
            return None
        held = [(some, self.content(lowest(some), column)) for some in parts]
        return {each[0]: (self.ranks(some), each[1]) for some, each in held if each}

    def content(self, row: int, column: int) -> tuple[Hashable, Mapping[str, Any]] | None:
        """Return a tensor's mark, and the tensor, without floats that are in the mark; None where it has no mark."""
        order, _, _, base = self.layout.places[column]
        if column in self.layout.among_whole and not (row and (row, order) in self.odd):
            begin = self.layout.first_bytes[column]
            own = self._bytes[row][begin : begin + 8 * len(WHOLE)].tobytes()
            if _MINUS_ZERO in own:
                own = (np.frombuffer(own) + 0.0).tobytes()
            told = (*self.layout.heads[column], own)
            return self._marks.setdefault(told, told), base  # a weight is in several records
        tensor = self.tensor(row, column)
        known = None if tensor is None else mark(tensor)
        return None if known is None or tensor is None else (known, tensor)

    def ranks(self, rows: int) -> int:
        """Return the ranks of some rows, both as bits."""
        if rows not in self._known:
            self._known[rows] = sum(bit for row, bit in enumerate(self.bits) if rows >> row & 1)
        return self._known[rows]

    def differing(self) -> list[int]:
        """Return the columns that not all runs hold alike."""
        return np.flatnonzero((self.codes != self.codes[0]).any(0)).tolist()


def parts_in(codes: npt.NDArray[np.uint64]) -> list[list[int]]:
    """Return for each column the sets of rows with the same code, as bits, without those whose code is 0."""
    known = dict[bytes, list[int]]()
    found = []
    slabs = (codes[:, n : n + _AT_ONCE] for n in range(0, codes.shape[1], _AT_ONCE))
    for column in chain.from_iterable(map(_firsts, slabs)):
        key = column.tobytes()
        if key not in known:
            bits = dict[int, int]()
            for row, lead in enumerate(column.tolist()):
                bits[lead] = bits.get(lead, 0) | 1 << row
            known[key] = [bits[lead] for lead in bits if lead >= 0]
        found.append(known[key])
    return found


def _firsts(codes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return column x row: the first row with the same code; -1 where the code is 0."""
    columns = np.ascontiguousarray(codes.T)
    rows = len(codes)
    bits = np.uint64(rows.bit_length())
    # To sort numbers that hold the row in their low bits takes a seventh of comparing each row with all.
    keys = (columns << bits | np.arange(rows, dtype="uint64")).ravel()
    keys.reshape(columns.shape).sort(axis=1)
    row = (keys & ((np.uint64(1) << bits) - np.uint64(1))).astype("int64")
    keys >>= bits
    begins = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=begins[1:])
    begins[::rows] = True
    at = np.flatnonzero(begins)
    leads = np.repeat(row[at], np.diff(at, append=len(keys)))
    first = np.empty(len(keys), "int64")
    first[row + np.repeat(np.arange(0, len(keys), rows), rows)] = leads
    first[columns.ravel() == 0] = -1
    return first.reshape(columns.shape)


def _coded(floats: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    """Return a number for each four floats."""
    bits = floats.view("uint64")
    bits = (bits ^ (bits >> _LOW)) * _FACTORS  # the low half of a float32's double is empty
    mixed: npt.NDArray[np.uint64] = (bits ^ (bits >> _LOW)).sum(-1, dtype="uint64")
    return mixed | np.uint64(1)


def _code(tensor: Mapping[str, Any] | None) -> int:
    known = None if tensor is None else mark(tensor)
    return 0 if known is None else hash(known) & (2**63 - 1) | 1
