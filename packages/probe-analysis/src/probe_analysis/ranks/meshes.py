"""Put the DTensors of each mesh beside one another: ranks at one place of what is not replicated hold copies."""

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

from .disagreement import held_in, mark
from .expected import Expected, is_placed
from .held import Piles, joined, united
from .rows import collective
from .sheet import Layout, Sheet

#: How many contents are kept of one tensor.
_MOST = 256
#: Where a rank's part is cut out; None of what is said of the whole tensor.
Cut = tuple[Hashable, ...] | None


@frozen(eq=False)
class Placed:
    """Hold a DTensor of some ranks. call: of the lowest of them, `rank`. parts: cut -> who holds what."""

    call: Call
    rank: int
    side: str
    parts: Mapping[Cut, Piles] = field(factory=dict)

    def with_(self, other: Placed) -> Placed:
        one = self if self.rank < other.rank else other
        cuts = {**self.parts, **other.parts}
        parts = {cut: united(self.parts.get(cut, {}), other.parts.get(cut, {}), _MOST) for cut in cuts}
        return Placed(one.call, one.rank, one.side, parts)


#: Record, or the how many-th call of a function inside of what, of how many; and slot.
Place = tuple[Hashable, str]
#: Mesh, as text -> place -> the tensor.
Meshes = dict[str, dict[Place, Placed]]


def placed_by(sheet: Sheet) -> Meshes:
    """Return the DTensors of runs that make the same calls, by their meshes."""
    orders = _placed_in_layout(sheet.layout).union(order for _, order in sheet.odd)
    return joined({}, *(_placed_by(run, sorted(orders)) for run in sheet.runs)) if orders else {}


@lru_cache(maxsize=4)
def _placed_in_layout(layout: Layout) -> frozenset[int]:
    """Return the records that hold a DTensor."""
    return frozenset(order for order, _, _, base in layout.places if is_placed(base))


def _placed_by(run: CompactRun, orders: Sequence[int]) -> Meshes:
    """Return the DTensors of some records."""
    found: Meshes = {}
    rank = run.rank.number or 0
    for order, mesh, number, place in _placed(
        run.calls, tuple(run.forms[order] for order in orders), tuple(orders)
    ):
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

    A function's calls are counted among those that hold one of the mesh, inside the same module: a rank may make others
    for itself. Where ranks make more or less of them, which is which is not known.
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
    """Return mesh -> the DTensors of a record that lie on it."""
    found: dict[str, list[int]] = {}
    for number, (_, _, base, *_) in enumerate(form.tensors):
        if is_placed(base):
            found.setdefault(json.dumps(base["device_mesh"]), []).append(number)
    return found


def global_form(tensor: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what every rank of a mesh must say alike of a placed tensor: dtype, whole shape, placements."""
    return str(tensor["dtype"]), str(tensor.get("global_shape")), str(tensor["placements"])


@lru_cache(maxsize=256)
def places_on(mesh: str) -> Mapping[int, tuple[int, ...]]:
    """Return where each rank is on a mesh, which is a list of ranks, or of such lists."""
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
    """Yield what the ranks of a mesh should agree on. placed: as in `Meshes`."""
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
