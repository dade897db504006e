"""Compare what replicas give to functions beside data: arguments, train or eval mode, buffers and other constants.

Data differ between replicas, and so does all that follows from them. Hence whole numbers, numbers in arithmetic, and
tensors that no record has made, count only where they stay the same from step to step while the data change. A whole
number may be a rank's own place, or the size of its data, and is blamed only where most ranks have another.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import Factory, define, field, frozen
from probe_format.schema import Parts, Value

from probe_analysis.calls.compact_run import CompactRun
from probe_analysis.calls.run import Call
from probe_analysis.compare.level import LIMITS, own_level

from .disagreement import odd_of
from .expected import Expected, in_update, is_divided, moves
from .held import MOST, Held, Kind, Piles, all_of, in_order, united, within
from .marks import held_in, mark, trusted
from .side_by_side import collective

_DEVICE = re.compile(r":\d+$")
RUNNING = ("running_mean", "running_var")


@frozen(eq=False)
class JointRow:
    """Hold one call of a step on all ranks that make it.

    parts: first rank of each cohort -> the content of its record. members: first rank -> the cohort's ranks, as bits.
    alike: whether all records are the same but for the numbers of tensors.
    piles: takes the first rank of a cohort, a slot and a kind; returns which ranks hold which content there.
    kind: returns which kind of content of a tensor is compared; None for none.
    """

    call: Call
    parts: Mapping[int, Parts]
    members: Mapping[int, int]
    alike: bool
    piles: Callable[[int, str, Kind], Piles]
    kind: Callable[[Value], Kind | None]
    _known: dict[tuple[str, Kind], Held | None] = field(factory=dict, init=False)

    def held(self, slot: str, kind: Kind) -> Held | None:
        """Return which ranks hold which content in a slot; None where there are too many contents."""
        if (slot, kind) not in self._known:
            found: Piles = {}
            for first in self.parts:
                found = united(found, self.piles(first, slot, kind), MOST[kind])
            self._known[slot, kind] = held_in(found)
        return self._known[slot, kind]

    def tensors(self, value: Value) -> Held | None:
        """Return which ranks hold which tensor in the slot of a value; None where there are too many tensors."""
        return self.held(value.slot, self.kind(value) or "held")


@define(eq=False)
class Given:
    """Compare what the replicas give to functions in one step.

    groups: of replicas, as bits. apart: groups whose ranks each update other weights, maybe with other numbers.
    before: the comparison of the step before.
    inputs: marks of the tensors that the model of the first replica gets; empty where that is not recorded.
    made: marks of these, and of the tensors that the calls so far have made.
    kept: what differs and may follow from data, by record, slot and group.
    running: the running statistics of batch norms that differ. norms: how many were compared in all.
    uneven: groups whose ranks have given tensors of other shapes so far, as where they get batches of other sizes.
    unsure: what differs and stayed the same, and may be a rank's own.
    """

    groups: Sequence[int]
    apart: Sequence[int]
    before: "Given | None"
    inputs: frozenset[Any]
    made: set[Any] = field(init=False, default=Factory(lambda self: {*self.inputs}, takes_self=True))
    kept: dict[tuple[str, str, int], tuple[Call, Expected]] = field(factory=dict)
    running: list[tuple[Call, Expected]] = field(factory=list)
    norms: int = 0
    uneven: set[int] = field(factory=set)
    unsure: list[tuple[Call, Expected]] = field(factory=list)

    def look(self, call: Call, row: JointRow) -> Iterator[Expected]:
        """Yield the arguments of a call that replicas should agree on and do not; keep the rest for `settled`."""
        if call.kind != "api" or call.backward or collective(call):
            return
        forms = {} if row.alike else row.held("", "form")
        looked_at: dict[int, list[Value]] = {}
        for group in self.groups:
            if in_update(call) and group in self.apart:
                continue
            who = next((first for first, bits in row.members.items() if bits & group), None)
            if who is None or (all_of(row.members.values()) & group).bit_count() < 2:
                continue
            parts = row.parts[who]
            if who not in looked_at:
                looked_at[who] = [*self._looked_at(call, parts)]
            if not row.alike:
                if forms is None or len(within(forms, group)) > 1:
                    self.uneven.add(group)
                    continue
                yield from self._arguments(call, parts, row, group)
            for value in looked_at[who]:
                self._tensor(call, value, row, group)
        first = next(iter(row.parts.values()))
        # A call that only moves or cuts a tensor that no record made has made nothing: its result is still looked at.
        if not moves(call) or not self.made.isdisjoint(map(_ends, first.side("in"))):
            self.made.update(map(_ends, first.side("out")))

    def _arguments(self, call: Call, parts: Parts, row: JointRow, group: int) -> Iterator[Expected]:
        for slot, _ in parts.others:
            held = within(row.held(slot, "argument") or {}, group)
            kinds = {_kind(leaf) for leaf in held.values()}
            if "" in kinds or len(held) < 2:
                continue
            expected, whole = Expected("argument", slot, held), "int" in kinds
            if not whole and (kinds != {"float"} or "Functional." in call.name or in_update(call)):
                yield expected
            elif not whole or (parts.side("in") and not moves(call) and group not in self.uneven):
                self.kept[call.name, slot, group] = call, expected

    def _looked_at(self, call: Call, parts: Parts) -> Iterator[Value]:
        """Yield the tensors that a call gets which do not follow from earlier calls, and running statistics."""
        for value in parts.side("in") if not moves(call) else ():
            computed = value.tensor.get("requires_grad") or _ends(value) in self.made
            follows = computed or in_update(call) or is_divided(value.tensor)
            if not follows or call.role(value.slot) in RUNNING:
                yield value

    def _tensor(self, call: Call, value: Value, row: JointRow, group: int) -> None:
        slot, first = value.slot, value.tensor
        running = call.role(slot) in RUNNING
        self.norms += running
        every = row.tensors(value)
        held = {group: first} if every is None else within(every, group)
        if running and (every is None or len(held) > 1):
            self.running.append((call, Expected("buffer", slot, None if every is None else held)))
        elif every is None or len(held) > 1:
            rounding = LIMITS["forward"] * own_level(held.values())
            self.kept[call.name, slot, group] = call, Expected("constant", slot, held, rounding)

    def settled(self) -> Iterator[tuple[Call, Expected]]:
        """Yield what is known when all calls were seen: constants that differ, and statistics of batch norms.

        Statistics that differ in most batch norms are kept by each replica, unless one of them has seen no data.
        """
        own = 2 * len(self.running) > self.norms
        for call, expected in self.running:
            filled = {tensor.get("Max") == tensor.get("Min") for tensor in (expected.held or {}).values()}
            if not own or len(filled) > 1:
                yield call, expected
        for call, expected in self._same():
            if _is_place(expected.held or {}):
                self.unsure.append((call, expected))
            else:
                yield call, expected

    def _same(self) -> Iterator[tuple[Call, Expected]]:
        """Yield what differs between ranks and stayed the same on each since the step before, with other data."""
        if self.before is None:
            return
        kept = {key: each[1].held or {} for key, each in self.before.kept.items() if key in self.kept}
        same = {key: _stayed(self.kept[key][1].held or {}, old) for key, old in kept.items()}
        # Whether the data are others than in the step before; only then does what stayed not follow from data.
        others = self.inputs != self.before.inputs or not all(some for some, _ in same.values())
        told = (self.kept[key] for key, (_, every) in same.items() if others and every)
        yield from (each for each in told if _tells(each[1]))


def inputs_of(run: CompactRun) -> frozenset[Any]:
    """Return marks of the tensors that the first outermost module of a run gets."""
    tops = (call for call in run.calls if call.kind == "module" and call.parent is None and not call.backward)
    return frozenset(_ends(value) for call in [*tops][:1] for value in run.read(call).side("in"))


def _stayed(now: Held, before: Held) -> tuple[bool, bool]:
    """Return whether any rank, and whether every rank, holds what it held before."""
    was = {_known(content): bits for bits, content in before.items()}
    same = [(bits, was.get(_known(content), 0)) for bits, content in now.items()]
    return any(bits & old for bits, old in same), all(not bits & ~old for bits, old in same)


def _ends(value: Value) -> Any:
    """Return a mark that is the same for a tensor and its views: its extremes, where they are known."""
    ends = value.tensor.get("Max"), value.tensor.get("Min")
    return mark(value.tensor) if ends[0] is None else ends


def _known(given: Any) -> Any:
    """Return what tells a tensor or an argument from others."""
    return mark(given) if given and "dtype" in given else repr(given)


def _tells(expected: Expected) -> bool:
    """Return whether ranks differ in an argument, or in a tensor whose equal marks mean equal contents.

    Not in a tensor without dimensions: it may be a number of the rank's own.
    """
    held = expected.held or {}
    first = next(iter(held.values()))
    return len(held) > 1 and (expected.reason == "argument" or bool(first["shape"] and trusted(first)))


def _is_place(held: Held) -> bool:
    """Return whether a whole number may be one of each rank's own, as none is that of most ranks."""
    return any(_kind(leaf) == "int" for leaf in held.values()) and not odd_of(in_order(held))


def _kind(leaf: Any) -> str:
    """Return the type of an argument that replicas may have to agree on; empty for others, and for devices."""
    kind = leaf.get("type") if isinstance(leaf, dict) else None
    text = kind == "str" and not _DEVICE.search(str(leaf.get("value")))
    return str(kind) if kind in ("float", "int", "bool") or text else ""
