"""Find what ranks of a device mesh should agree on in DTensors: the form, and the content where it is replicated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from attrs import field, frozen

from probe_analysis.calls.compact_run import CompactRun, RecordForm
from probe_analysis.calls.run import Call
from probe_analysis.compare.level import LIMITS, own_level

from .expected import Expected, is_placed
from .held import MOST, Piles, joined, united
from .marks import held_in, mark
from .sheet import Layout, Sheet
from .side_by_side import collective

#: Which part of a tensor a rank has: its coordinates on the mesh, None for each dimension along which the tensor is
#: replicated. None in place of all of them is the whole tensor.
Cut = tuple[Hashable, ...] | None


@frozen(eq=False)
class Placed:
    """Hold a DTensor as some ranks have it.

    call: the call of ``rank``, the lowest of these ranks. parts: cut -> which ranks hold which content.
    """

    call: Call
    rank: int
    side: str
    parts: Mapping[Cut, Piles] = field(factory=dict)

    def with_(self, other: Placed) -> Placed:
        one = self if self.rank < other.rank else other
        cuts = {**self.parts, **other.parts}
        parts = {cut: united(self.parts.get(cut, {}), other.parts.get(cut, {}), MOST["held"]) for cut in cuts}
        return Placed(one.call, one.rank, one.side, parts)


#: The name of a record, and the slot. For a function, in place of the name: mesh, function, pass and module; which of
#: the function's calls there it is; and how many calls there are.
Place = tuple[Hashable, str]
#: Mesh, as text -> place -> the tensor.
Meshes = dict[str, dict[Place, Placed]]


def placed_by(sheet: Sheet) -> Meshes:
    """Return the DTensors of runs that make the same calls, by their meshes."""
    orders = _placed_in_layout(sheet.layout).union(order for _, order in sheet.odd)
    in_order = tuple(sorted(orders))
    return joined({}, *(_placed_by(run, in_order) for run in sheet.runs)) if orders else {}


@lru_cache(maxsize=4)
def _placed_in_layout(layout: Layout) -> frozenset[int]:
    return frozenset(order for order, _, _, base in layout.places if is_placed(base))


def _placed_by(run: CompactRun, orders: Sequence[int]) -> Meshes:
    found: Meshes = {}
    rank = run.rank.number or 0
    forms = tuple(run.forms[order] for order in orders)
    for order, mesh, number, place in _placed(run.calls, forms, orders):
        call = run.calls[order]
        slot, side, base, *_ = run.forms[order].tensors[number]
        tensor = run.tensor(order, number)
        parts: dict[Cut, Piles] = {None: {global_form(tensor): (1 << rank, tensor)}}
        at = places_on(mesh).get(rank)
        known = mark(tensor)
        if at is not None and known is not None:
            cuts = zip(at, base["placements"], strict=False)
            cut = tuple(None if "Replicate" in placed else i for i, placed in cuts)
            parts[cut] = {known: (1 << rank, tensor)}
        made = call if call.rank is run.rank else call.of(run.rank)
        found.setdefault(mesh, {})[place, slot] = Placed(made, rank, side, parts)
    return found


@lru_cache(maxsize=4)
def _placed(
    calls: Sequence[Call], forms: Sequence[RecordForm], orders: Sequence[int]
) -> Sequence[tuple[int, str, int, Hashable]]:
    """Return order, mesh, number and place of each DTensor of some records.

    A function's calls are numbered among those in the same module that hold a DTensor of the same mesh, as a rank may
    make others for itself. The place has their count too: where counts differ, nobody knows which call is which.
    """
    found = []
    counts = Counter[Hashable]()
    for order, form in zip(orders, forms, strict=True):
        call = calls[order]
        kind = call.what, call.backward, call.parent
        for mesh, numbers in _placed_in(form).items() if not collective(call) else ():
            found += [(order, mesh, number, (mesh, *kind), counts[mesh, *kind]) for number in numbers]
            counts[mesh, *kind] += call.kind == "api"
    return [
        (order, mesh, number, (kind, n, counts[kind]) if counts[kind] else calls[order].name)
        for order, mesh, number, kind, n in found
    ]


@lru_cache(maxsize=1024)
def _placed_in(form: RecordForm) -> Mapping[str, Sequence[int]]:
    """Return mesh -> the numbers of the DTensors of a record that lie on it."""
    found: dict[str, list[int]] = {}
    for number, (_, _, base, *_) in enumerate(form.tensors):
        if is_placed(base):
            found.setdefault(json.dumps(base["device_mesh"]), []).append(number)
    return found


def global_form(tensor: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the records of all ranks of a mesh must say alike of a DTensor: dtype, global shape, placements."""
    return str(tensor["dtype"]), str(tensor.get("global_shape")), str(tensor["placements"])


@lru_cache(maxsize=256)
def places_on(mesh: str) -> Mapping[int, tuple[int, ...]]:
    """Return rank -> its coordinates on a mesh. mesh: JSON text of a list of ranks, or of such lists."""
    found: dict[int, tuple[int, ...]] = {}
    todo: list[tuple[tuple[int, ...], Any]] = [((), json.loads(mesh))]
    while todo:
        at, part = todo.pop()
        if isinstance(part, list):
            todo += [((*at, i), below) for i, below in enumerate(part)]
        elif isinstance(part, int):
            found[part] = at
    return found


def settled_mesh(placed: Mapping[Place, Placed]) -> Iterator[tuple[Call, Expected]]:
    """Yield the DTensors that ranks of a mesh should agree on, each with its call. placed: as in `Meshes`."""
    for (_, slot), each in placed.items():
        forms = each.parts[None]
        if forms is None or len(forms) > 1:
            yield each.call, Expected("form", slot, None if forms is None else dict(forms.values()))
            continue
        for cut, piles in each.parts.items():
            if cut is not None:
                held = held_in(piles)
                level = 0.0 if each.side == "parameter" else own_level((held or {}).values())
                if held is None or sum(map(int.bit_count, held)) > 1:
                    yield each.call, Expected("placement", slot, held, LIMITS["forward"] * level)
