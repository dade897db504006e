"""Read each record of a rank once, and keep its content in little memory, for comparisons.

A record is taken apart into its numbers and its form, which is all the rest. Most records have the form of an earlier
one, of this rank or of another: each form is kept once for all of them, and so are equal lists of calls.
"""

from __future__ import annotations

import marshal
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate, chain, count, islice
from threading import local
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from probe_format.errors import DamagedError
from probe_format.json_floats import take_floats
from probe_format.jsonio import decode, loads
from probe_format.schema import Document, Parts, Side, Value, is_tensor, others, parts_of, why_lost
from probe_format.schema import tensors as all_tensors
from probe_format.statistics import WHOLE

from probe_analysis.compare.estimates import SIDES, Column
from probe_analysis.compare.level import Size, own_level, size_of, unit_of

from .run import Call, Run
from .tabled import Tables, statistic

#: The parts of a record that a call got.
GOT = ("input_args", "input_kwargs", "input")
#: The texts of a tensor that are another in each record.
_TEXTS = ("md5", "data_name", "data_crc32")
#: The keys of a tensor that hold numbers and such texts; all else is the same in many records, and on many ranks.
_OWN = (*WHOLE, "sketch", *_TEXTS)
#: How the numbers of a tensor stand in its text.
_KEYS = [b'%b"%b":' % (b"," if n else b"", key.encode()) for n, key in enumerate(WHOLE)]
_GROUP = re.compile(rb'"group_ranks":\[[\d,]*\](?:,"group_id":"[^"\\]*")?')
_TEXTS_IN_TEXT = re.compile(rb'"(%b)":"([ !#-\[\]-~]*)"' % "|".join(_TEXTS).encode())


class Tensors(tuple[tuple[str, Side, Mapping[str, Any], tuple[str, ...], tuple[str, ...]], ...]):
    """Hold the tensors of a record. Equal by identity alone, which is fast: many records share one such object."""

    __slots__ = ()
    __eq__, __hash__ = object.__eq__, object.__hash__


@frozen(slots=False, eq=False)
class RecordForm:
    """Hold all of a record but the numbers of its tensors.

    tensors: (slot, side, tensor without numbers, keys of its numbers that are floats, keys of the others).
    others: its arguments that are not tensors, as in `Parts`.
    positional, keywords: how many arguments the call got by position, and the names of the rest.
    marks: the values of its keys; of a list or an object only whether it holds anything. None for a saved value.
    unfinished: whether a mark, or an argument that is lost, says that the process ended inside of the call.
    lacks: whether a tensor or an argument is lost.
    """

    tensors: Tensors
    others: tuple[tuple[str, Any], ...]
    positional: int
    keywords: tuple[str, ...]
    marks: Mapping[str, Any] | None
    unfinished: bool
    lacks: bool
    counts: tuple[int, int] = field(init=False)

    @counts.default
    def _counted(self) -> tuple[int, int]:
        """Return how many numbers of the tensors are floats, and how many numbers and texts are not."""
        return sum(len(floats) for *_, floats, _ in self.tensors), sum(len(rest) for *_, rest in self.tensors)

    @cached_property
    def sizes(self) -> Sequence[Size] | None:
        """Return the size of each tensor; None unless all have the numbers of `WHOLE`, as floats, and no more."""
        if any(keys != WHOLE or rest or "nan_count" in tensor for _, _, tensor, keys, rest in self.tensors):
            return None
        return [size_of(str(tensor["dtype"]), tuple(tensor["shape"])) for _, _, tensor, *_ in self.tensors]

    @cached_property
    def sides(self) -> Sequence[int]:
        """Return the place in `SIDES` of the side of each tensor."""
        return [SIDES.index(side) for _, side, *_ in self.tensors]

    @cached_property
    def is_blind(self) -> bool:
        """Return whether the record holds nothing of what the call got."""
        return self.marks is not None and not set(GOT) & set(self.marks)

    @cached_property
    def has_whole(self) -> bool:
        """Return whether a tensor has whole numbers."""
        return not all(unit_of(str(tensor["dtype"])) for _, _, tensor, *_ in self.tensors)

    @cached_property
    def floor(self) -> float:
        """Return the level of difference that the call makes by its own rounding."""
        return own_level(tensor for _, _, tensor, *_ in self.tensors)

    @property
    def raised(self) -> bool:
        """Return whether an error of the run ended the call."""
        why = (self.marks or {}).get("raised")
        return isinstance(why, str) and not why.startswith("Probe: ")

    def filled(self, floats: Iterable[float], rest: Iterable[Any]) -> Parts:
        """Return the content of a record of this form.

        floats: the floats of its tensors, in order. rest: their other numbers and texts, in order.
        """
        numbers, others = iter(floats), iter(rest)
        values = []
        for slot, side, tensor, keys, more in self.tensors:
            own = {key: next(numbers) for key in keys} | {key: next(others) for key in more}
            values.append(Value(slot, side, {**tensor, **own}))
        return Parts(tuple(values), self.others)


#: The name of a record and its text, as in `Document.texts`.
Named = tuple[str, bytes | None]
#: How many records are read at once: of all of them the text would be in memory twice.
_AT_ONCE = 256
#: How many texts of records are kept for further runs; tables count as 128 of them.
MOST = 2048
#: Forms of consecutive records, all their floats, and a record's place among them -> its other numbers and texts.
Batch = tuple[Sequence[RecordForm], Sequence[float], Mapping[int, Sequence[Any]]]
#: Order -> why a record cannot be read.
Damaged = dict[int, DamagedError]
_DAMAGED = RecordForm(Tensors(), (), 0, (), None, unfinished=False, lacks=True)
#: The form of a record, its floats, and its other numbers and texts.
Packed = tuple[RecordForm, Sequence[float], Sequence[Any]]


@frozen(slots=False, eq=False)
class Tabled:
    """Hold what the tables of ranks that make the same calls have in common.

    tables: those of the first such rank. forms: of its records.
    rows: of each record, its rows in the table of tensors and in that of arguments.
    special: the numbers of the records with a tensor that is not just four finite floats.
    taken: the rows of the tensors of all other records.
    refilled: the special records that `refill` gives rightly.
    """

    tables: Tables
    forms: Sequence[RecordForm]
    rows: Sequence[tuple[range, range]]
    special: frozenset[int]
    taken: Any
    refilled: set[int] = field(factory=set)

    @classmethod
    def of(cls, tables: Tables, packed: Sequence[Packed]) -> Tabled:
        whole, rows, forms = tables.whole, [*tables.rows.values()], [form for form, *_ in packed]
        taken, special = list[int](), set[int]()
        for n, (form, (own, _)) in enumerate(zip(forms, rows, strict=True)):
            if form.counts != (len(WHOLE) * len(own), 0) or not whole[own.start : own.stop].all():
                special.add(n)
            else:
                taken += own
        known = cls(tables, forms, rows, frozenset(special), taken)
        again = ((n, known.refill(n, tables)) for n in special)
        known.refilled.update(n for n, found in again if found and repr(found[1:]) == repr(packed[n][1:]))
        return known

    def refill(self, number: int, tables: Tables) -> Packed | None:
        """Return the content of a record of other tables, taken to have the form that it has here.

        None where it may have another form, so that its rows must be read.
        """
        form, rows = self.forms[number], self.rows[number][0]
        numbers = tables.numbers[rows.start : rows.stop]
        bare = tables.tensors[1].bare[rows.start : rows.stop].all()
        if len(form.tensors) != len(rows) or not bare or not np.isfinite(numbers).all():
            return None
        floats, rest = list[float](), list[Any]()
        for own, (_, _, tensor, keys, more) in zip(numbers.tolist(), form.tensors, strict=True):
            dtype = str(tensor["dtype"])
            found = {key: statistic(key, x, dtype) for key, x in zip(WHOLE, own, strict=True)}
            floating = tuple(key for key, x in found.items() if type(x) is float)
            if keys != floating or {*keys, *more} != {*WHOLE}:
                return None
            floats += [found[key] for key in keys]
            rest += [found[key] for key in more]
        return form, floats, rest

    def others(self, tables: Tables) -> dict[int, dict[str, str]]:
        """Return the arguments of other tables that differ from those here: number of a record -> slot -> JSON."""
        texts, found = tables.texts, dict[int, dict[str, str]]()
        for row in (n for n, (a, b) in enumerate(zip(self.tables.texts, texts, strict=True)) if a != b):
            number, slot = self._where[row]
            found.setdefault(number, {})[slot] = texts[row]
        return found

    @cached_property
    def _where(self) -> list[tuple[int, str]]:
        slots = self.tables.arguments[1].table["slot"].to_pylist()
        return [(n, slots[row]) for n, (_, rows) in enumerate(self.rows) for row in rows]


#: What the runs that a thread has read have in common.
_kept = local()


@contextmanager
def letting_go() -> Iterator[None]:
    """Forget what was kept for further runs when the block, or the function that this decorates, ends."""
    try:
        yield
    finally:
        vars(_kept).clear()


@frozen(eq=False)
class Shared:
    """Hold what runs have in common, each thing once: the forms of their records, and their lists of calls.

    known: the text of a record without its numbers -> its form, where the text has the numbers in the form's order.
    groups: as `known`, but of texts without their process group.
    _varied: as `known`, of records that differ from a known one in the process group alone.
    _changed: a form, and the arguments that are others in a record of tables -> the form with these arguments.
    """

    _forms: dict[bytes, RecordForm] = field(factory=dict)
    known: dict[bytes, RecordForm] = field(factory=dict)
    groups: dict[bytes, RecordForm] = field(factory=dict)
    _calls: dict[Any, tuple[Call, ...]] = field(factory=dict)
    _sheets: list[Tabled] = field(factory=list)
    _varied: dict[bytes, RecordForm] = field(factory=dict)
    _changed: dict[Any, RecordForm] = field(factory=dict)

    @staticmethod
    def kept() -> Shared:
        """Return what the runs that this thread has read have in common, but for calls; less where it is much."""
        last = getattr(_kept, "shared", Shared())
        if len(last.known) + 128 * len(last._sheets) >= MOST:
            last = Shared()
        if len(last._varied) + len(last._changed) >= MOST // 2:  # of groups there are more than of all else
            last._varied.clear()
            last._changed.clear()
        _kept.shared = shared = evolve(last, calls={})
        return shared

    def calls(self, run: Run, *, among: bool) -> tuple[Call, ...]:
        """Return the calls of a run. among: whether those of an earlier rank that made the same may be returned."""
        tables = run.rank.documents[0].records
        key: Any = self._fitting(tables) if among and isinstance(tables, Tables) else None
        if key is None:
            names, parents = run.rank.records.names, run.rank.construct.parents
            key = (*names, *map(parents.get, names))
        if key not in self._calls:
            self._calls[key] = run.calls
        elif not among:
            return tuple(call.of(run.rank) for call in self._calls[key])
        return self._calls[key]

    def records(self, document: Document, damaged: Damaged | None, first: int) -> Iterator[Batch]:
        """Yield the content of the records, in their order.

        damaged: takes the error of each record that cannot be read; None to raise it.
        first: the number of the first record.
        """
        if isinstance(document.records, Tables):
            yield from self._tabled(document, document.records, damaged)
            return
        texts = document.texts()
        for batch in iter(lambda: [*islice(texts, _AT_ONCE)], []):
            yield from self._batch(document, batch, damaged, first)
            first += len(batch)

    def _batch(
        self, document: Document, each: Sequence[Named], damaged: Damaged | None, first: int
    ) -> Iterator[Batch]:
        """Yield the content of consecutive records: of those whose forms are known, many at once."""
        text = b"\n".join(text or b"\0" for _, text in each)
        if b"\0" in text or b"\1" in text:
            for n, (name, own) in enumerate(each, first):
                yield _one(self._or_damaged(document, name, own, damaged, n))
            return
        known, numbers = _without_floats(text)
        lines = known.split(b"\n")
        forms, words = self._forms_of(lines)
        at = word = begun = 0
        for n, form in enumerate(forms):
            if form is not None and not form.counts[1]:
                continue
            before = [x for x in forms[begun:n] if x is not None]
            end = at + sum(x.counts[0] for x in before)
            yield before, numbers[at:end], {}
            at, last = _ends(lines[n], end, word)
            if form is None:
                packed = self._or_damaged(document, *each[n], damaged, first + n)
            else:
                packed = form, numbers[end:at], words[word:last]
            yield _one(packed)
            word, begun = last, n + 1
        yield [x for x in forms[begun:] if x is not None], numbers[at:], {}

    def _forms_of(self, lines: list[bytes]) -> tuple[list[RecordForm | None], Sequence[str]]:
        """Return the form of each line, None where it is not known, and the texts taken out of lines.

        lines: records without floats. From unknown ones the texts of their tensors are removed too, in place.
        """
        forms = [self.known.get(line) or self._varied.get(line) for line in lines]
        unknown = [n for n, form in enumerate(forms) if form is None]
        if not unknown:
            return forms, ()
        known, words = _without_texts(b"\n".join(lines[n] for n in unknown))
        for n, line in zip(unknown, known.split(b"\n"), strict=True):
            lines[n] = line
            forms[n] = self.known.get(line) or self._varied.get(line) or self._of_group(line)
        return forms, words

    def _of_group(self, line: bytes) -> RecordForm | None:
        """Return the form of a line that differs from a known one in the process group alone; None for others."""
        groups = {*_GROUP.findall(line)}
        form = self.groups.get(_GROUP.sub(b"", line)) if len(groups) == 1 else None
        if form is not None:
            own = loads(b"{%b}" % groups.pop())
            given = (
                (at, {**x, **own} if isinstance(x, dict) and "group_ranks" in x else x)
                for at, x in form.others
            )
            form = self._varied[line] = evolve(form, others=tuple(given))
        return form

    def _or_damaged(
        self, document: Document, name: str, text: bytes | None, damaged: Damaged | None, number: int
    ) -> Packed:
        try:
            return self.packed(document, name, text)
        except DamagedError as error:
            if damaged is None:
                raise
            damaged[number] = error
            return _DAMAGED, (), ()

    def _fitting(self, tables: Tables) -> Tabled | None:
        return next((each for each in self._sheets if each.tables.is_like(tables)), None)

    def _tabled(self, document: Document, tables: Tables, damaged: Damaged | None) -> Iterator[Batch]:
        """Yield the content of each record of tables: what is as on an earlier rank is taken from there."""
        known = self._fitting(tables)
        if known is None:
            packed = [self._or_damaged(document, name, None, damaged, n) for n, name in enumerate(tables)]
            self._sheets.append(Tabled.of(tables, packed))
            yield from map(_one, packed)
            return
        numbers = tables.numbers[known.taken].ravel()
        others, forms, at, begun = known.others(tables), [*known.forms], 0, 0
        for n in sorted(known.special.union(others)):
            if n not in known.special and "lost" not in "".join(others[n].values()):
                forms[n] = self._with_others(forms[n], others[n])
                continue
            end = at + sum(form.counts[0] for form in forms[begun:n])
            yield forms[begun:n], numbers[at:end], {}
            again = known.refill(n, tables) if n in known.refilled and n not in others else None
            yield _one(again or self.taken_apart(tables.made(n, *known.rows[n])))
            at, begun = end + (0 if n in known.special else forms[n].counts[0]), n + 1
        yield forms[begun:], numbers[at:], {}

    def _with_others(self, form: RecordForm, texts: Mapping[str, str]) -> RecordForm:
        """Return a form with other arguments. texts: slot -> JSON."""
        key = form, *texts.items()
        if key not in self._changed:
            leaves = {slot: loads(text.encode()) for slot, text in texts.items()}
            own = tuple((slot, leaves.get(slot, leaf)) for slot, leaf in form.others)
            self._changed[key] = evolve(form, others=own)
        return self._changed[key]

    def packed(self, document: Document, name: str, text: bytes | None) -> Packed:
        """Return what is in a record. text: as in `Document.texts`. Raises DamagedError when it cannot be read."""
        if text is None:
            return self.taken_apart(document.record(name))
        known, floats = _without_floats(text)
        known, texts = _without_texts(known)
        form = self.known.get(known)
        counts = len(floats), len(texts)
        if form is not None and form.counts == counts:
            return form, floats, texts
        packed = self.taken_apart(document.record(name))
        # The record may have more numbers than were taken out (whole ones), or have them in another order.
        if packed[0].counts == counts and self.taken_apart(loads(_counted(text)))[1:] == _counts(*counts):
            self.known[known] = packed[0]
            if len({*_GROUP.findall(known)}) == 1:
                self.groups[_GROUP.sub(b"", known)] = packed[0]
        return packed

    def taken_apart(self, record: Any) -> Packed:
        """Return the content of a record; its form is an earlier record's where all but the numbers is the same."""
        parts = parts_of(record)
        tensors, numbers, rest = _told_apart(parts.values)
        marks = _marks(record)
        known = {} if marks is None else record
        given, named = known.get("input_args"), known.get("input_kwargs")
        positional = len(given) if isinstance(given, list) else 0
        keywords = tuple(named) if isinstance(named, dict) else ()
        less = any(why_lost(leaf) for _, leaf in others(record))
        lacks = less or any(why_lost(tensor) for _, tensor in all_tensors(record))
        unfinished = less or bool(known.get("incomplete"))
        form = tuple(tensors), parts.others, positional, keywords, marks, unfinished, lacks
        key = marshal.dumps(form, 2)  # unlike JSON, it tells NaN from null
        if key not in self._forms:
            self._forms[key] = RecordForm(Tensors(tensors), *form[1:])
        return self._forms[key], numbers, rest


def _told_apart(values: Iterable[Value]) -> tuple[list[tuple[Any, ...]], list[float], list[Any]]:
    """Return tensors without their numbers and texts, as `Tensors` takes them; the floats; and the rest of both."""
    tensors, numbers, rest = list[tuple[Any, ...]](), list[float](), list[Any]()
    for value in values:
        own = [(key, value.tensor[key]) for key in _OWN if key in value.tensor]
        tensor = {key: x for key, x in value.tensor.items() if key not in _OWN}
        floats = tuple(key for key, x in own if type(x) is float)
        numbers += [x for _, x in own if type(x) is float]
        rest += [x for _, x in own if type(x) is not float]
        tensors.append((value.slot, value.side, tensor, floats, tuple(k for k, _ in own if k not in floats)))
    return tensors, numbers, rest


def _marks(record: Any) -> dict[str, Any] | None:
    if not isinstance(record, dict) or is_tensor(record):
        return None
    return {key: bool(x) if isinstance(x, list | dict) else x for key, x in record.items()}


def _without_floats(text: bytes) -> tuple[bytes, Sequence[float]]:
    """Return the text of records without the floats of their tensors, and these floats."""
    known, floats = take_floats(text, _KEYS)
    try:
        return known, array("d", decode(b"[%b]" % floats))
    except ValueError:
        return text, ()  # a record that holds no JSON is said to be damaged where it is read by itself


def _without_texts(known: bytes) -> tuple[bytes, list[str]]:
    """Return the text of records without the texts of their tensors, and these texts."""
    pieces = _TEXTS_IN_TEXT.split(known)
    texts = [*map(bytes.decode, pieces[2::3])]
    del pieces[2::3]
    return b"\1".join(pieces), texts


def _one(packed: Packed) -> Batch:
    form, floats, rest = packed
    return (form,), floats, {0: rest} if rest else {}


def _ends(line: bytes, floats: int, texts: int) -> tuple[int, int]:
    """Return where the floats and the texts of a line end among all. floats, texts: where they begin.

    In the line, a byte 0 stands for four floats, and two bytes 1 for a text.
    """
    return floats + len(WHOLE) * line.count(b"\0"), texts + line.count(b"\1") // 2


def _counts(floats: int, texts: int) -> tuple[list[float], list[str]]:
    return [i + 0.5 for i in range(floats)], [str(i) for i in range(texts)]


def _counted(text: bytes) -> bytes:
    """Return the text of a record with `_counts` in place of its floats and texts, to see how they come."""
    n, m = count(), count()
    known = take_floats(text, _KEYS)[0].split(b"\0")
    counted = (b"".join(b"%b%d.5" % (key, next(n)) for key in _KEYS) for _ in known[1:])
    whole = b"".join(chain.from_iterable(zip(known, (*counted, b""), strict=True)))
    return _TEXTS_IN_TEXT.sub(lambda found: b'"%b":"%d"' % (found[1], next(m)), whole)


@frozen(slots=False, eq=False, repr=False)
class CompactRun(Run):
    """Give access to the calls of one rank of one step, whose file is not kept.

    calls: every record as a call, in the order of completion. They may be the calls of another rank that made the
        same; the content of this rank's records is asked of this run.
    among: whether it is compared with other ranks. Then it also counts as cut where an error of the run ended its
        last call.
    damaged: order -> why a record cannot be read, which matters once the call is asked for.
    forms: of its records. begin: where the floats of each record begin among ``floats``.
    _others: order -> its numbers and texts that are no floats (whole numbers, flags, checksums).
    """

    calls: tuple[Call, ...]
    among: bool
    _cut: bool
    damaged: dict[int, DamagedError] = field(factory=dict)
    forms: list[RecordForm] = field(factory=list)
    begin: array[int] = field(factory=lambda: array("Q"))
    floats: array[float] = field(factory=lambda: array("d"))
    _others: dict[int, Sequence[Any]] = field(factory=dict)

    @classmethod
    def of(cls, run: Run, shared: Shared, *, among: bool = False) -> CompactRun:
        """Read the records of a run, each once.

        Raises FormatError when a file is damaged, and with ``among`` also when a record is.
        """
        compact = cls(run.label, run.rank, shared.calls(run, among=among), among, run.was_cut)
        for document in run.rank.documents:
            known = None if among else compact.damaged
            for forms, floats, rest in shared.records(document, known, len(compact.forms)):
                compact.floats.frombytes(np.asarray(floats, "d").tobytes())
                compact._others.update((len(compact.forms) + n, own) for n, own in rest.items())
                compact.forms.extend(forms)
        ends = accumulate((form.counts[0] for form in compact.forms), initial=0)
        compact.begin.extend(islice(ends, len(compact.forms)))
        run.rank.release(whole=bool(compact.forms) and not any(form.lacks for form in compact.forms))
        return compact

    @cached_property
    def was_cut(self) -> bool:
        """Return whether the end of the step is not there: the process was killed, an error ended it, or it runs on."""
        return self._cut or (self.among and any(form.raised for form in self.forms[-1:]))

    def form(self, call: Call) -> RecordForm:
        """Return the form of a call's record on this rank.

        Raises KeyError for a call that is not among ``calls``, and DamagedError when the record cannot be read.
        """
        at = call.order
        if at >= len(self.calls) or self.calls[at] is not call:
            raise KeyError(f"{self.label} does not make {call.name} as number {at}.")
        if at in self.damaged:
            raise self.damaged[at]
        return self.forms[at]

    def packed(self, call: Call) -> Packed:
        """Return a call's record on this rank, taken apart for comparisons. Raises as `form` does."""
        at, form = call.order, self.form(call)
        begin = self.begin[at]
        return form, self.floats[begin : begin + form.counts[0]], self._others.get(at, ())

    def read(self, call: Call) -> Parts:
        """Return what is in a call's record on this rank. Raises as `form` does."""
        form, numbers, rest = self.packed(call)
        return form.filled(numbers, rest)

    def four(self, orders: Sequence[int], counts: Sequence[int]) -> Column:
        """Return Max, Min, Mean and Norm of tensors of some records that hold these floats alone, (tensors, 4).

        orders: of the records. counts: how many tensors of each are asked for, from its first on.
        """
        many = np.asarray(counts)
        begin = np.asarray(self.begin)[orders].astype(int) - 4 * (np.cumsum(many) - many)
        first = np.repeat(begin, many) + 4 * np.arange(many.sum())
        found: Column = np.asarray(self.floats)[first[:, None] + np.arange(4)]
        return found

    def tensor(self, order: int, number: int) -> Mapping[str, Any]:
        """Return a tensor of a record. number: its place among the record's tensors."""
        tensors = self.forms[order].tensors
        _, _, base, floats, rest = tensors[number]
        begin = self.begin[order] + sum(len(x[3]) for x in tensors[:number])
        own = dict(zip(floats, self.floats[begin : begin + len(floats)], strict=True))
        if rest:
            begin = sum(len(x[4]) for x in tensors[:number])
            own |= zip(rest, self._others[order][begin:], strict=False)
        return {**base, **own}

    def ended_inside(self, call: Call) -> bool:
        """Return whether, in a run that was cut, the process ended inside of a call."""
        form = self.form(call)
        # A backward call is written when it begins. Journals of version 1 did not mark what had not come by then.
        blank = call.backward and call.kind == "module" and all(side != "out" for _, side, *_ in form.tensors)
        return self.was_cut and (form.unfinished or blank or (self.among and form.raised))
