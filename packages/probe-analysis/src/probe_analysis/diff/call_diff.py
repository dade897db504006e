"""Compare one call of a run with the same call of another: what went in, and what came out."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal

from attrs import define, frozen
from probe_format.errors import FormatError
from probe_format.names import with_direction
from probe_format.schema import Parts, Side, Value, parts_of, writes_into

from probe_analysis.align.alignment import Pair
from probe_analysis.calls.run import GRADIENTS, Call, Run, ended_inside
from probe_analysis.compare.distance import (
    ArgumentDifference,
    Distance,
    Elements,
    compare_arguments,
    compare_elements,
    distance,
)
from probe_analysis.compare.tolerance import Tolerance

#: What a call did that the other did not: got other arguments, other parameters, other tensors from a part of the
#: run that is not recorded, or gave another result for what it got.
Cause = Literal["arguments", "parameters", "input", "output"]

#: The parts of a record that a call got.
_GOT = ("input_args", "input_kwargs", "input")
_SIDES: tuple[Side, ...] = ("in", "parameter", "out")


@frozen(eq=False)
class ValueDiff:
    """Say how far a tensor of one call is from that of the other call in the same place.

    slot: its place in the record of the first run, or of the second where only that has it.
    elements: from the saved values, where both were saved and differ.
    """

    slot: str
    side: Side
    distance: Distance
    elements: Elements | None = None


@frozen(eq=False)
class CallDiff:
    """Hold how two calls differ.

    values: their tensors that differ.
    arguments: the other arguments that differ.
    brought: the largest difference in what the call took: its inputs, its parameters and, of a backward call, its
    forward call. Differences are relative (`Distance`).
    made: the largest in what it returned.
    allowed: how large that may be (`Tolerance.allowed`).
    entry: how large a difference in what it took may be, if it is to follow from the calls before.
    unshared: the sides that only one of the records has, which are not compared.
    blind: whether what the call got is in no record (``data_mode``).
    cause: what is different here first; None where nothing is, or where it follows from what the call took.
    """

    pair: Pair
    values: tuple[ValueDiff, ...] = ()
    arguments: tuple[ArgumentDifference, ...] = ()
    brought: float = 0.0
    made: float = 0.0
    allowed: float = 0.0
    entry: float = 0.0
    cause: Cause | None = None
    unshared: tuple[Side, ...] = ()
    blind: bool = False

    @property
    def exact(self) -> bool:
        """Return whether nothing differs at all, as far as the records tell."""
        return not self.values and not self.arguments

    def worst(self, *sides: Side) -> ValueDiff | None:
        """Return the tensor on these sides that is the farthest apart; None where none differ."""
        found = (v for v in self.values if v.side in sides)
        return max(found, key=lambda v: v.distance.relative, default=None)

    @property
    def cells(self) -> tuple[Any, ...]:
        """Return both names, the cause and the three numbers, and the tensor that is the farthest apart."""
        worst = self.worst(*_SIDES)
        apart = (None, None) if worst is None else (worst.slot, worst.distance.what)
        names = self.pair.a.name, self.pair.b.name
        return *names, self.cause, self.brought, self.made, self.allowed, *apart


#: Called with each call that is compared, its record and what is in it: the first run's, then the second's.
Look = Callable[[Call, Any, Parts], None]


@define(slots=False, eq=False)
class Comparison:
    """Compare the calls of two runs.

    load: whether saved values are compared.
    follows: whether an earlier step has a cause: what comes in may then differ because of that.
    noise: record -> how far two runs of the same program are apart there; None where that is not measured.
    look: is given both records, so that nobody needs to read them again.
    """

    a: Run
    b: Run
    tolerance: Tolerance
    load: bool
    follows: bool = False
    noise: Mapping[str, float] | None = None
    look: Look | None = None

    @cached_property
    def across(self) -> bool:
        """Return whether the runs are of two frameworks, which write arguments in other forms."""
        return self.a.is_across(self.b)

    @cached_property
    def passed_on(self) -> bool:
        """Return whether the gradients that a function passes on are compared: msprobe may write another form."""
        return self.a.one_slot_per_argument == self.b.one_slot_per_argument

    def in_order(self, pairs: Iterable[Pair], idle: frozenset[str] = frozenset()) -> Iterator[CallDiff]:
        """Yield how the calls of each pair differ. idle: the names of calls that are taken for the same."""
        drift = 0.0  # the largest difference so far that rounding explains
        apart: dict[str, float] = {}
        follows = self.follows
        for pair in pairs:
            if pair.a.name in idle:
                yield CallDiff(pair)
                continue
            before = apart.get(with_direction(pair.a.name, "forward"), 0.0) if pair.a.backward else 0.0
            found = self.of(pair, drift, before, follows)
            largest = max(found.brought, found.made)
            apart[pair.a.name] = largest
            if found.cause is None and not math.isinf(largest):
                drift = max(drift, largest)
            follows = follows or found.cause is not None
            yield found

    def of(self, pair: Pair, drift: float = 0.0, before: float = 0.0, follows: bool = False) -> CallDiff:
        """Return how the calls of a pair differ.

        drift: the largest difference so far that rounding explains.
        before: of a backward call, the largest difference in its forward call.
        """
        records = pair.a.record.json, pair.b.record.json
        calls = ((pair.a, "first"), (pair.b, "second")) if self.a.rank.lost or self.b.rank.lost else ()
        lost = [(loss, which) for call, which in calls for loss in call.rank.lost.of(call.name)]
        # Saved values may differ where all statistics are the same.
        loads = self.load and bool(pair.a.rank.header.get("dump_data_dir"))
        same = records[0] == records[1] and not lost and not loads
        if same and self.look is None:
            return CallDiff(pair, brought=before)
        a = parts_of(records[0])
        b = a if same else parts_of(records[1])
        if self.look is not None:
            self.look(pair.a, records[0], a)
            self.look(pair.b, records[1], b)
            if same:
                return CallDiff(pair, brought=before)
        if unknown := {each.slot for each, _ in lost if not each.known}:
            a, b = (Parts(tuple(v for v in x.values if v.slot not in unknown), x.others) for x in (a, b))
        unshared = _sides_of_one(pair.a, *records)
        keys = set(records[0]) if isinstance(records[0], dict) else set(_GOT)
        blind = pair.a.kind in ("module", "api") and not (keys & set(_GOT))
        shared = tuple(side for side in _SIDES if side not in unshared)
        compared = not pair.a.backward and "in" in shared
        arguments = compare_arguments(a.others, b.others, both=self.across) if compared else ()
        if self.noise is not None:
            own = 4.0 * self.noise.get(pair.a.name, 0.0)
        else:
            own = self.tolerance.of([v.tensor for parts in (a, b) for v in parts.values])
        sides = zip((pair.a, pair.b), records, (self.a.open, self.b.open), strict=True)
        known = ((call, record, cut) for call, record, cut in sides if cut is not None and not unknown)
        ended = any(call.name == cut or ended_inside(call, record) for call, record, cut in known)
        not_passed_on = not self.passed_on and pair.a.backward and pair.a.kind == "api"
        if ended or not_passed_on:
            shared = tuple(side for side in shared if side != "out")
        said = ((each, Distance(0.0, f"is lost in the {which}: {each.why}")) for each, which in lost)
        told = tuple(ValueDiff(each.slot, each.side, what) for each, what in said)  # they have no size
        found = tuple(self._each(pair, a, b, own, shared))
        if not any(v.side == "out" for v in found):  # what a call wrote over may be memory of `torch.empty`
            found = tuple(v for v in found if v.distance.form or not writes_into(pair.a.name, v.slot))
        values = told + found
        largest = dict.fromkeys(_SIDES, 0.0)
        for value in values:
            largest[value.side] = max(largest[value.side], value.distance.relative)
        brought = max(largest["in"], largest["parameter"], before)
        allowed = self.tolerance.allowed(own, max(brought, drift))
        entry = self.tolerance.allowed(own, max(drift, before))
        cause: Cause | None = None
        if arguments:
            cause = "arguments"
        elif largest["parameter"] > entry and not follows:
            cause = "parameters"
        elif largest["in"] > entry and not follows:
            cause = "input"
        elif largest["out"] > allowed and not (follows and pair.a.kind in GRADIENTS):
            cause = "output"  # parameters' gradients take nothing themselves
        made = largest["out"]
        return CallDiff(pair, values, arguments, brought, made, allowed, entry, cause, unshared, blind)

    def _each(self, pair: Pair, a: Parts, b: Parts, own: float, sides: Iterable[Side]) -> Iterator[ValueDiff]:
        for side in sides:
            given = side == "out" and pair.a.backward
            for x, y in _matched(a.side(side), b.side(side), across=self.across, given=given):
                if self.load or x is None or y is None or x.tensor != y.tensor:
                    value = self._value(pair, x, y, side, own)
                    if value.distance.relative > 0.0:
                        yield value

    def _value(self, pair: Pair, x: Value | None, y: Value | None, side: Side, own: float) -> ValueDiff:
        if x is None or y is None:
            present = x or y
            assert present is not None
            words = "is in the first alone" if y is None else "is in the second alone"
            return ValueDiff(present.slot, side, Distance(math.inf, words, form=True))
        found = distance(x.tensor, y.tensor)
        sums = x.tensor.get("md5"), y.tensor.get("md5")
        same = isinstance(sums[0], str) and sums[0] == sums[1]
        if self.load and "data_name" in x.tensor and not math.isinf(found.relative) and not same:
            elements = _elements(pair, x, y, own)
            if elements is not None:
                words = f"largest difference {elements.max_abs:.6g}" if elements.max_abs else ""
                return ValueDiff(x.slot, side, Distance(elements.relative, words), elements)
        return ValueDiff(x.slot, side, found)


def _sides_of_one(call: Call, one: Any, two: Any) -> tuple[Side, ...]:
    """Return the sides of a call that only one of two records has: ``data_mode`` left them out of the other."""
    if call.kind not in ("module", "api") or not (isinstance(one, dict) and isinstance(two, dict)):
        return ()
    keys: dict[Side, tuple[str, ...]] = {"in": _GOT, "out": ("output",)}
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


def _elements(pair: Pair, x: Value, y: Value, tolerance: float) -> Elements | None:
    """Return the difference of saved values; None where one side has none, or they cannot be read."""
    if not (x.tensor.get("data_name") and y.tensor.get("data_name")):
        return None
    try:
        one, two = (call.record.tensor(v.slot).load() for call, v in ((pair.a, x), (pair.b, y)))
    except FormatError:
        return None
    if one.shape != two.shape or one.dtype.kind not in "fcbiu" or two.dtype.kind not in "fcbiu":
        return None
    return compare_elements(one, two, str(x.tensor["dtype"]), tolerance)
