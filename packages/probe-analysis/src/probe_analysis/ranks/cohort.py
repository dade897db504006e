"""Keep the records of ranks that make the same calls: one rank's whole, and where other ranks hold something else."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from attrs import field, frozen
from probe_format.schema import Value

from probe_analysis.calls.compact_run import CompactRun, Tensors
from probe_analysis.calls.run import GRADIENTS, Call

from .expected import in_update, is_divided
from .given import RUNNING
from .held import MOST, Kind, Piles, lowest, united
from .sheet import Layout, Sheet
from .side_by_side import collective

#: The order of a record, a slot in it, and the kind of content that is compared there.
Cell = tuple[int, str, Kind]


def kind_of(call: Call, slot: str, side: str, tensor: Mapping[str, Any], asked: Sequence[str]) -> Kind | None:
    """Return which kind of content of a tensor is compared.

    None where ranks need not agree, or are compared by their process group or by the tensor's placement.
    """
    if asked and any(fnmatchcase(f"{call.name}.{slot}", pattern) for pattern in asked):
        return "held"
    if is_divided(tensor):
        return None
    if in_update(call):
        return "held"
    if call.backward or collective(call):
        return None
    if call.kind == "module":
        return "held" if side == "parameter" else "given" if side == "in" and call.parent is None else None
    if call.kind != "api" or side != "in":
        return None
    role = call.role(slot)
    weight = role in ("weight", "bias") and tensor.get("requires_grad")
    return "held" if weight or role in RUNNING else "given"


@frozen(slots=False, eq=False)
class Cohort:
    """Hold ranks that make the same calls.

    members: the ranks, as bits. lead: the run of the lowest.
    asked: patterns of further tensors that all ranks should agree on.
    spread: each cell that not all of them hold alike -> which ranks hold which content.
    """

    members: int
    lead: CompactRun
    asked: tuple[str, ...]
    spread: Mapping[Cell, Piles] = field(factory=dict)

    @classmethod
    def of(cls, sheet: Sheet, asked: tuple[str, ...]) -> Cohort:
        """Return the cohort of some runs, the lowest rank first."""
        members = sum(sheet.bits)
        return cls(members, sheet.runs[0], asked, {cell: piles() for cell, piles in _spread(sheet, asked)})

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a pickle holds: each set of ranks once, as pickle would write the number each time."""
        places: dict[int, int] = {}
        spread = _with_sets(self.spread, lambda bits: places.setdefault(bits, len(places)))
        return _unpickled, (self.members, self.lead, self.asked, [*places], spread)

    def piles(self, cell: Cell) -> Piles:
        """Return which ranks hold which content in a cell; None where there are too many contents."""
        if cell in self.spread:
            return self.spread[cell]
        known = _content(self.lead, cell)
        return {} if known is None else {known[0]: (self.members, known[1])}

    @cached_property
    def odd(self) -> set[int]:
        """Return the calls whose records differ in more than the numbers of tensors."""
        return {cell[0] for cell in self.spread if cell[2] in ("form", "argument")}

    def with_(self, other: Cohort) -> Cohort:
        """Return this cohort and another with the same calls as one cohort."""
        one, two = sorted((self, other), key=lambda each: lowest(each.members))
        between = _spread(Sheet((one.lead, two.lead)), self.asked)
        cells = {**one.spread, **two.spread, **dict(between)}
        unions = dict[Any, Any]()
        spread = {cell: united(one.piles(cell), two.piles(cell), MOST[cell[2]], unions) for cell in cells}
        _own.cache_clear()
        _sheet.cache_clear()  # of many ranks, all but the lowest are let go here
        return Cohort(one.members | two.members, one.lead, self.asked, spread)


def _unpickled(
    members: int, lead: CompactRun, asked: tuple[str, ...], sets: Sequence[int], spread: Mapping[Cell, Piles]
) -> Cohort:
    """Return a cohort. sets: sets of ranks; ``spread`` has the places of its sets among them."""
    return Cohort(members, lead, asked, _with_sets(spread, sets.__getitem__))


def _with_sets(spread: Mapping[Cell, Piles], by: Callable[[int], int]) -> dict[Cell, Piles]:
    """Return the cells with another number for each set of ranks. by: makes the number."""
    found = dict[Cell, Piles]()
    for cell, piles in spread.items():
        found[cell] = piles and {mark: (by(bits), content) for mark, (bits, content) in piles.items()}
    return found


@lru_cache(maxsize=4)
def _kinds(calls: tuple[Call, ...], layout: Layout, asked: tuple[str, ...]) -> list[Kind | None]:
    """Return which kind of content of each tensor is compared, as `kind_of` does."""
    return [kind_of(calls[order], slot, side, base, asked) for order, slot, side, base in layout.places]


@lru_cache(maxsize=4)
def _columns(calls: tuple[Call, ...], layout: Layout) -> tuple[list[int], list[int], list[int]]:
    """Return the columns of the gradients of parameters, of the weights, and of the optimizer's inputs."""
    grads, weights, taken = list[int](), list[int](), list[int]()
    for n, (order, _, side, _) in enumerate(layout.places):
        call = calls[order]
        if call.kind == "module" and not call.backward and side == "parameter":
            weights.append(n)
        elif call.kind == "parameters_grad":
            grads.append(n)
        elif call.kind != "optimizer_grad" and side == "in" and in_update(call) and not collective(call):
            taken.append(n)  # a sharded optimizer (ZeRO) gives every weight to a broadcast
    return grads, weights, taken


def _content(run: CompactRun, cell: Cell) -> tuple[Hashable, Any] | None:
    """Return the mark of what a run holds in a cell, and the content; None where it holds nothing."""
    order, slot, kind = cell
    if kind == "form":
        return _given_form(run.read(run.calls[order]).side("in")), None
    if kind == "argument":
        leaf = dict(run.forms[order].others).get(slot)
        return repr(leaf), leaf
    sheet = _sheet(run)
    if kind == "updated":
        found = next(_updated(sheet))
        return found, found
    column = sheet.layout.at.get((order, slot))
    if column is None:
        return None
    if kind == "own":
        name = _own(run).get((0, column))
        return (name, name) if name else None
    return sheet.content(0, column)


@lru_cache(maxsize=32)
def _sheet(run: CompactRun) -> Sheet:
    return Sheet((run,))


@lru_cache(maxsize=32)
def _own(run: CompactRun) -> dict[tuple[int, int], str]:
    """Return (0, column) -> parameter, for each column with a gradient of the run's own backward pass."""
    sheet = _sheet(run)
    return _own_gradients(sheet, range(len(sheet.layout.places)))


def _given_form(values: Sequence[Value]) -> str:
    """Return slot, shape and dtype of a function's inputs: ranks are compared only where these are alike."""
    return repr([(value.slot, value.tensor["shape"], value.tensor["dtype"]) for value in values])


def _spread(sheet: Sheet, asked: tuple[str, ...]) -> Iterator[tuple[Cell, Callable[[], Piles]]]:
    """Yield each cell that not all runs hold alike, and a function that returns which ranks hold what there."""
    first = sheet.runs[0]
    kinds, calls = _kinds(first.calls, sheet.layout, asked), first.calls
    columns = [column for column in sheet.differing() if kinds[column]]
    places = {column: sheet.layout.places[column] for column in columns}
    for column, (order, slot, *_) in places.items():
        kind = kinds[column] or "held"
        yield (order, slot, kind), partial(sheet.piles, column, MOST[kind])
    updates = [column for column in columns if in_update(calls[places[column][0]])]
    own: dict[int, dict[int, str]] = {column: {} for column in updates}
    for (row, column), name in _own_gradients(sheet, updates).items():
        own[column][row] = name
    for column, names in own.items():
        yield (*places[column][:2], "own"), partial(_piled, sheet, names)
    whose = dict(enumerate(_updated(sheet)))
    if len({*whose.values()}) > 1:
        yield (0, "", "updated"), partial(_piled, sheet, whose)
    for order in sheet.varied:
        yield from _odd(sheet, calls[order])


def _piled(sheet: Sheet, found: Mapping[int, Any], by: Callable[[Any], Hashable] = lambda x: x) -> Piles:
    """Return which ranks hold which content. found: row -> content. by: returns what tells a content from others."""
    piles: dict[Hashable, tuple[int, Any]] = {}
    for row, content in found.items():
        bits, first = piles.get(by(content), (0, content))
        piles[by(content)] = bits | sheet.bits[row], first
    return piles


def _odd(sheet: Sheet, call: Call) -> Iterator[tuple[Cell, Callable[[], Piles]]]:
    """Yield the cells in which records of a call differ beside the numbers of tensors: forms, and arguments."""
    if call.kind != "api" or call.backward or collective(call):
        return
    reads = {row: run.read(run.calls[call.order]) for row, run in enumerate(sheet.runs)}
    forms = {row: _given_form(parts.side("in")) for row, parts in reads.items()}
    if len({*forms.values()}) > 1:
        yield (call.order, "", "form"), partial(united, _piled(sheet, forms), {}, MOST["form"])
    others = {row: dict(parts.others) for row, parts in reads.items()}
    for slot in dict.fromkeys(slot for given in others.values() for slot in given):
        leaves = {row: given.get(slot) for row, given in others.items()}
        if len({*map(repr, leaves.values())}) > 1:
            piles = _piled(sheet, leaves, repr)
            yield (call.order, slot, "argument"), partial(united, piles, {}, MOST["argument"])


def _own_gradients(sheet: Sheet, columns: Sequence[int]) -> dict[tuple[int, int], str]:
    """Return row and column -> the parameter whose gradient, as the rank's own backward pass left it, is there."""
    calls, places = sheet.runs[0].calls, sheet.layout.places
    grads, *_ = _columns(calls, sheet.layout)
    found: dict[tuple[int, int], str] = {}
    trusted = sheet.trusted(grads)
    for row, codes in enumerate(sheet.codes[:, columns] if columns and grads else ()):
        own = sheet.codes[row, grads]
        known = {code: n for n, code in reversed([*enumerate(own.tolist())])}
        for hit in np.flatnonzero(np.isin(codes, own)).tolist():
            column, n = columns[hit], known[int(codes[hit])]
            if trusted[row, n]:
                order, slot, *_ = places[grads[n]]
                found[row, column] = f"{calls[order].name}.{slot}"
    return found


#: Stands among the weights that a rank updates where it updates only parts of weights.
PART = ("", "", 0)


def _updated(sheet: Sheet) -> Iterator[frozenset[tuple[str, str, int]]]:
    """Yield for each row the weights that its optimizer updates: module's path, slot, and number of the update."""
    calls, places = sheet.runs[0].calls, sheet.layout.places
    _, weights, taken = _columns(calls, sheet.layout)
    names = [(calls[places[n][0]].path, places[n][1], 0) for n in weights]
    shapes = {
        (path, slot.partition(".")[2]): places[n][3]["shape"]
        for n, (path, slot, _) in zip(weights, names, strict=True)
    }
    seen: dict[Hashable, frozenset[tuple[str, str, int]]] = {}
    orders = [call.order for call in calls if call.kind in GRADIENTS]
    both = sheet.codes[:, taken].tolist(), sheet.codes[:, weights].tolist()
    for run, codes, own in zip(sheet.runs, *both, strict=True):
        hit = bytes(map({*codes}.__contains__, own))
        forms = tuple(run.forms[order].tensors for order in orders)
        if (hit, forms) not in seen:
            named = _named([calls[order] for order in orders], forms, shapes)
            seen[hit, forms] = frozenset(name for name, yes in zip(names, hit, strict=True) if yes) | named
        yield seen[hit, forms]


def _named(
    calls: Sequence[Call], forms: Sequence[Tensors], shapes: Mapping[tuple[str, str], Any]
) -> frozenset[tuple[str, str, int]]:
    """Return the weights whose gradients an optimizer got; with `PART` where a gradient has another shape than these.

    shapes: path and name of a weight -> its shape where its module used it, which FSDP has gathered by then.
    """
    found = set[tuple[str, str, int]]()
    for call, form in zip(calls, forms, strict=True):
        for slot, _, base, *_ in form:
            shape = shapes.get((call.path, slot.rpartition(".")[0]), base["shape"])
            found |= {PART} if shape != base["shape"] and not is_divided(base) else set()
            found |= {(call.path, slot, call.count)} if call.kind == "optimizer_grad" else set()
    return frozenset(found)
