"""Compare one call of a run with the same call of another: what went in, and what came out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby, zip_longest
from typing import Any, Literal, get_args

from attrs import define, field
from probe_format.errors import FormatError
from probe_format.excerpts import brief
from probe_format.read import Loss
from probe_format.schema import Parts, Side, Value, writes_into
from probe_format.tensors import Place, opened

from probe_analysis.align.alignment import Pair
from probe_analysis.calls.compact_run import GOT, CompactRun, RecordForm
from probe_analysis.calls.run import GRADIENTS, Call
from probe_analysis.compare.distance import (
    ArgumentDifference,
    Distance,
    Elements,
    apart,
    compare_arguments,
    compare_elements,
    distance,
)
from probe_analysis.compare.estimates import SIDES, Level, Told
from probe_analysis.compare.level import LIMITS, mark_of, own_level, unit_of

from .in_floats import FloatRecords

#: What a call did that the other did not: got other arguments, other parameters, other tensors from a part of the
#: run that is not recorded, or gave another result for what it got.
Cause = Literal["arguments", "parameters", "input", "output"]
CAUSES: tuple[Cause, ...] = get_args(Cause)

Floats = Sequence[float]
#: How many pairs are compared at once: of all of them the numbers would be in memory twice.
AT_ONCE = 1024


@define(eq=False)
class ValueDiff:
    """Say how far a tensor of one call is from that of the other call in the same place.

    slot: its place in the record of the first run, or of the second where only that has it.
    found: the distance; or the statistics on both sides and the number of elements, from which it is computed.
    told, row: the levels of all tensors, and this tensor's row among them; None where its numbers tell no level.
    elements: from the saved values, where both were saved and differ.
    """

    slot: str
    side: Side
    found: Distance | tuple[Floats, Floats, int]
    told: Told
    row: int | None = None
    elements: Elements | None = None

    @property
    def level(self) -> Level | None:
        """Return how far rounding would have to take the elements; None where the numbers do not tell."""
        return None if self.row is None else self.told.levels.at(self.row)

    @property
    def is_lone(self) -> bool:
        """Return whether one of the calls alone has a tensor in this place."""
        return self.level is None and math.isinf(self.distance.relative)

    @property
    def distance(self) -> Distance:
        return self.found if isinstance(self.found, Distance) else apart(*self.found)


@define(eq=False)
class CallDiff:
    """Hold how two calls differ.

    _values: the tensors that differ; where only finite floats do, the comparison, which finds them when asked.
    arguments: the other arguments that differ.
    unshared: the sides that only one of the records has, which are not compared.
    blind: whether what the call got is in no record (``data_mode``).
    floor: the level of difference that the call makes by itself.
    rows: the rows of its tensors among the levels of all.

    What follows is filled in when all calls are known (`expect`, `Causes`).

    expected: the level that its results may have.
    entry: the level that rounding has brought the run to before it.
    given: how far apart the tensors are that it took and no call before it returned, in multiples of ``entry``.
    made: how far apart its results are, in multiples of ``expected``.
    cause: what is different here first; None where nothing is, or where it follows from what the call took.
    detail: what is different, in words, where that is not the value that is the farthest apart.
    """

    pair: Pair
    _values: tuple[ValueDiff, ...] | Comparison = field(default=(), repr=False)
    arguments: tuple[ArgumentDifference, ...] = ()
    unshared: tuple[Side, ...] = ()
    blind: bool = False
    floor: float = 0.0
    rows: slice = field(default=slice(0, 0))
    expected: float = 0.0
    entry: float = 0.0
    given: float = 0.0
    made: float = 0.0
    cause: Cause | None = None
    detail: str = ""

    @property
    def changed(self) -> bool:
        """Return whether a tensor differs."""
        return bool(self._values)

    @property
    def values(self) -> tuple[ValueDiff, ...]:
        """Return the tensors that differ."""
        return self._values if isinstance(self._values, tuple) else self._values.numbers(self)

    @property
    def forms(self) -> list[ValueDiff]:
        """Return the tensors that differ in form."""
        return [v for v in self._values if v.distance.form] if isinstance(self._values, tuple) else []

    def levels(self, *sides: Side) -> list[tuple[str, Level]]:
        """Return the slots on these sides whose numbers differ, and their levels."""
        each = ((v.slot, v.level) for v in self.values if v.side in sides)
        return [(slot, level) for slot, level in each if level is not None]

    @property
    def brought(self) -> float:
        """Return the largest level of what the call took."""
        return self._largest("in", "parameter")

    @property
    def returned(self) -> float:
        """Return the largest level of what the call returned."""
        return self._largest("out")

    def _largest(self, *sides: Side) -> float:
        each = ((v, v.level) for v in self.values if v.side in sides)
        return max((v.distance.relative if x is None else x.largest for v, x in each), default=0.0)

    @property
    def limit(self) -> float:
        """Return how many times the expected level its results may have."""
        call = self.pair.a
        return LIMITS["gradient" if call.kind in GRADIENTS else "backward" if call.backward else "forward"]

    @property
    def allowed(self) -> float:
        """Return the level that its results may have."""
        return self.expected * self.limit

    @property
    def exact(self) -> bool:
        """Return whether nothing differs at all, as far as the records tell."""
        return not self.changed and not self.arguments

    @property
    def differs(self) -> bool:
        """Return whether a tensor differs at all; a lost tensor does not count."""
        return any(v.distance.relative or v.distance.form for v in self.values)

    def worst(self, *sides: Side) -> ValueDiff | None:
        """Return the tensor on these sides that is the farthest apart; None where none differ."""
        found = (v for v in self.values if v.side in sides)
        return max(found, key=lambda v: v.distance.relative, default=None)

    @property
    def cells(self) -> tuple[Any, ...]:
        """Return the row of the pair, as spec/results.md has it."""
        worst, a, b = self.worst(*SIDES), self.pair.a.name, self.pair.b.name
        apart = [str(argument) for argument in self.arguments]
        slot = elements = None
        if worst is not None:
            slot, elements = worst.slot, worst.elements
            apart.append(f"{slot} {worst.distance.what}")
        exact = (None, None) if elements is None else (elements.cosine, elements.max_ulp)
        levels = self.brought, self.returned, self.allowed
        return a, b, self.cause, *levels, slot, "; ".join(apart), *exact


Tensor = Mapping[str, Any]


@define(slots=False, eq=False)
class Comparison:
    """Compare the calls of two runs.

    load: whether saved values are compared.
    told: takes the numbers that tell the levels of the tensors that differ, call after call.
    """

    a: CompactRun
    b: CompactRun
    load: bool
    told: Told = field(factory=Told)

    @cached_property
    def across(self) -> bool:
        """Return whether the runs are of two frameworks, which write arguments in other forms."""
        return self.a.is_across(self.b)

    @cached_property
    def passed_on(self) -> bool:
        """Return whether the gradients that a function passes on are compared: msprobe may write another form."""
        return self.a.one_slot_per_argument == self.b.one_slot_per_argument

    def each(self, pairs: Sequence[Pair]) -> Iterator[CallDiff]:
        """Yield how the calls of each pair differ. Pairs that can differ in floats alone are compared together."""
        records = FloatRecords(self.told)
        for begin in range(0, len(pairs), AT_ONCE):
            some = pairs[begin : begin + AT_ONCE]
            forms = [self._common(pair) for pair in some]
            counts = [0 if form is None else len(form.tensors) for form in forms]
            ones = self.a.four([pair.a.order for pair in some], counts)
            twos = self.b.four([pair.b.order for pair in some], counts)
            found = records.compare([pair.a.name for pair in some], forms, ones, twos)
            for plain, each in groupby(range(len(some)), found.plain.__getitem__):
                places = [*each]
                if not plain:
                    yield from (self.of(some[n]) for n in places)
                    continue
                for n, rows in zip(places, found.add_to(self.told, places[0], places[-1] + 1), strict=True):
                    form = forms[n] if found.other[n] else None
                    yield CallDiff(some[n]) if form is None else self._in_floats(some[n], form, rows)

    def _common(self, pair: Pair) -> RecordForm | None:
        """Return the form that both records have, where floats alone tell how they differ; else None."""
        form = self.a.form(pair.a)
        same = form is self.b.form(pair.b) and form.sizes is not None
        if not same or self._loads or self._lost(pair) or (self._ends and self._is_open(pair, lost=False)):
            return None
        return form

    def _in_floats(self, pair: Pair, form: RecordForm, rows: slice) -> CallDiff:
        changed: Any = self if rows.start < rows.stop else ()
        return CallDiff(pair, changed, (), (), _is_blind(pair.a, form), form.floor, rows)

    def of(self, pair: Pair) -> CallDiff:
        """Return how the calls of a pair differ."""
        one, two = self.a.packed(pair.a), self.b.packed(pair.b)
        lost = self._lost(pair)
        # Saved values may differ where all statistics are the same.
        if not lost and not self._loads and one == two:
            return CallDiff(pair)
        marks = one[0].marks, two[0].marks
        a, b = one[0].filled(*one[1:]), two[0].filled(*two[1:])
        if unknown := {each.slot for each, _ in lost if not each.known}:
            a, b = (Parts(tuple(v for v in x.values if v.slot not in unknown), x.others) for x in (a, b))
        unshared = _sides_of_one(pair.a, *marks)
        compared = not pair.a.backward and "in" not in unshared
        arguments = compare_arguments(a.others, b.others, both=self.across) if compared else ()
        without = (*unshared, *(("out",) if self._is_open(pair, bool(unknown)) else ()))
        each = self._each(pair, a, b, tuple(side for side in SIDES if side not in without))
        own, begin = own_level(v.tensor for v in (*a.values, *b.values)), len(self.told.side)
        values = self._lost_values(lost) + self._counting(pair, each)
        rows, blind = slice(begin, len(self.told.side)), _is_blind(pair.a, one[0])
        return CallDiff(pair, values, arguments, unshared, blind, own, rows)

    def numbers(self, each: CallDiff) -> tuple[ValueDiff, ...]:
        """Return the tensors that differ of two calls whose records differ in finite floats alone, as most do."""
        (form, ones, _), (_, twos, _) = self.a.packed(each.pair.a), self.b.packed(each.pair.b)
        found = []
        for row in range(each.rows.start, each.rows.stop):
            number = self.told.number[row]
            slot, side, *_ = form.tensors[number]
            own = slice(4 * number, 4 * number + 4)
            assert form.sizes is not None
            apart = ones[own], twos[own], form.sizes[number].count
            found.append(ValueDiff(slot, side, apart, self.told, row))
        return tuple(found)

    @cached_property
    def _loads(self) -> bool:
        return self.load and bool(self.a.rank.header.get("dump_data_dir"))

    def tensors(self, pair: Pair, *sides: Side) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield the slot of each tensor on these sides that both calls have, and the tensor in either."""
        others = {value.slot: value.tensor for value in self.b.read(pair.b).side(*sides)}
        for value in self.a.read(pair.a).side(*sides):
            if value.slot in others:
                yield value.slot, value.tensor, others[value.slot]

    def _lost(self, pair: Pair) -> list[tuple[Loss, str]]:
        """Return what of the calls is lost, and in which run."""
        if not (self.a.rank.lost or self.b.rank.lost):
            return []
        calls = (pair.a, "first"), (pair.b, "second")
        return [(loss, which) for call, which in calls for loss in call.rank.lost.of(call.name)]

    @cached_property
    def _ends(self) -> bool:
        """Return whether `_is_open` can be true of any pair."""
        return self.a.was_cut or self.b.was_cut or not self.passed_on

    def _is_open(self, pair: Pair, lost: bool) -> bool:
        """Return whether the results are not compared: a run ended inside one of the calls, or they have other forms.

        lost: whether a value is lost of which more is not known.
        """
        if not self.passed_on and pair.a.backward and pair.a.kind == "api":
            return True
        known = () if lost else ((self.a, pair.a), (self.b, pair.b))
        return any(run.was_cut and (call.name == run.open or run.ended_inside(call)) for run, call in known)

    def _each(self, pair: Pair, a: Parts, b: Parts, sides: Iterable[Side]) -> Iterator[ValueDiff]:
        for side in sides:
            given = side == "out" and pair.a.backward
            for x, y in _matched(a.side(side), b.side(side), across=self.across, given=given):
                if self.load or x is None or y is None or x.tensor != y.tensor:
                    yield self._value(pair, x, y, side)

    def _value(self, pair: Pair, x: Value | None, y: Value | None, side: Side) -> ValueDiff:
        if x is None or y is None:
            present = x or y
            assert present is not None
            which, other = ("first", pair.b) if y is None else ("second", pair.a)
            words = f"is in the {which} alone"
            record: Any = other.record.json  # of a damaged dump it may be anything
            if side == "out" and isinstance(record, dict) and isinstance(why := record.get("raised"), str):
                words += f": the other call raised {brief(why)}"
            return ValueDiff(present.slot, side, Distance(math.inf, words, form=True), self.told)
        found = distance(x.tensor, y.tensor)
        if x.tensor["shape"] != y.tensor["shape"] or math.isinf(found.relative):
            row: int | None = self.told.put(side, mark_of(x.tensor, y.tensor))
            return ValueDiff(x.slot, side, found, self.told, row)
        sums = x.tensor.get("md5"), y.tensor.get("md5")
        same = isinstance(sums[0], str) and sums[0] == sums[1]
        if self.load and "data_name" in x.tensor and not same:
            elements = _elements(pair, x, y)
            if elements is not None:
                words = f"largest difference {elements.max_abs:.6g}" if elements.max_abs else ""
                rounded = bool(unit_of(str(x.tensor["dtype"])))
                known = (elements.apart, 0.0, False) if rounded else (math.inf, math.inf, True)
                row = self.told.put(side, mark_of(x.tensor, y.tensor), known)
                return ValueDiff(x.slot, side, Distance(elements.relative, words), self.told, row, elements)
        return ValueDiff(x.slot, side, found, self.told, self.told.of(side, x.tensor, y.tensor))

    def _counting(self, pair: Pair, values: Iterable[ValueDiff]) -> tuple[ValueDiff, ...]:
        """Return the values that differ.

        Where no result differs, inputs that the call writes over do not count: they may be memory of `torch.empty`.
        """
        every = tuple(values)
        found = [v for v in every if v.distance.relative > 0.0 or v.distance.form]
        if not any(v.side == "out" for v in found):
            found = [v for v in found if v.distance.form or not writes_into(pair.a.name, v.slot)]
        for v in every:
            if v.row is not None and v not in found:
                self.told.side[v.row] = -1
        return tuple(found)

    def _lost_values(self, lost: Sequence[tuple[Loss, str]]) -> tuple[ValueDiff, ...]:
        """Return what is lost as differences, which have no size."""
        said = ((each, Distance(0.0, f"is lost in the {which}: {each.why}")) for each, which in lost)
        return tuple(ValueDiff(each.slot, each.side, what, self.told) for each, what in said)


def _is_blind(call: Call, form: RecordForm) -> bool:
    return call.kind in ("module", "api") and form.is_blind


def _sides_of_one(call: Call, one: Any, two: Any) -> tuple[Side, ...]:
    """Return the sides of a call that only one of two records has: ``data_mode`` left them out of the other."""
    if call.kind not in ("module", "api") or not (isinstance(one, dict) and isinstance(two, dict)):
        return ()
    keys: dict[Side, tuple[str, ...]] = {"in": GOT, "out": ("output",)}
    found = tuple(side for side, of in keys.items() if any(k in one for k in of) != any(k in two for k in of))
    if found and ("parameters" in one) != ("parameters" in two):
        return (*found, "parameter")
    return found


def _matched(
    ones: tuple[Value, ...], twos: tuple[Value, ...], *, across: bool, given: bool
) -> list[tuple[Value | None, Value | None]]:
    """Return the tensors of one side pair by pair: by slot; by order where frameworks number slots differently.

    given: whether they are gradients that a backward call passes on. Frameworks differ in which they compute (that of
    the model's own input, to begin with), so that across frameworks those that one has alone are left out.
    """
    if [v.slot for v in ones] == [v.slot for v in twos]:
        return list(zip(ones, twos, strict=True))
    by_slot = {v.slot: v for v in twos}
    if across and given:
        return [(v, by_slot[v.slot]) for v in ones if v.slot in by_slot]
    if across:
        return list(zip_longest(ones, twos))
    pairs: list[tuple[Value | None, Value | None]] = [(v, by_slot.pop(v.slot, None)) for v in ones]
    return pairs + [(None, v) for v in by_slot.values()]


def _elements(pair: Pair, x: Value, y: Value) -> Elements | None:
    """Return the difference of saved values; None where one side has none, or they cannot be read.

    Files of equal bytes are not loaded.
    """
    if not (x.tensor.get("data_name") and y.tensor.get("data_name")):
        return None
    ones, twos = (call.record.tensor(v.slot) for call, v in ((pair.a, x), (pair.b, y)))
    try:
        if _same_bytes(ones.place, twos.place):
            return Elements(0.0, 0.0, 0.0, 1.0, 0.0, 0.0)
        one, two = ones.load(), twos.load()
    except (FormatError, OSError):
        return None
    if one.shape != two.shape or one.dtype.kind not in "fcbiu" or two.dtype.kind not in "fcbiu":
        return None
    return compare_elements(one, two, str(x.tensor["dtype"]))


def _same_bytes(one: Place | None, two: Place | None) -> bool:
    """Return whether two files hold the same bytes; False where one is not there."""
    if one is None or two is None:
        return False
    with opened(one) as a, opened(two) as b:
        while piece := a.read(1 << 20):
            if piece != b.read(1 << 20):
                return False
        return not b.read(1)
