"""Put the DTensors of each mesh beside one another: ranks at one place of what is not replicated hold copies."""

from __future__ import annotations

import json
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


#: Mesh, as text -> record and slot -> the tensor.
Meshes = dict[str, dict[tuple[str, str], Placed]]


def placed_by(sheet: Sheet) -> Meshes:
    """Return the DTensors of runs that make the same calls, by their meshes."""
    orders = _placed_in_layout(sheet.layout).union(order for _, order in sheet.odd)
    return joined({}, *(_placed_by(run, sorted(orders)) for run in sheet.runs)) if orders else {}


@lru_cache(maxsize=8)
def _placed_in_layout(layout: Layout) -> frozenset[int]:
    """Return the records that hold a DTensor."""
    return frozenset(order for order, _, _, base in layout.places if is_placed(base))


def _placed_by(run: CompactRun, orders: Sequence[int]) -> Meshes:
    """Return the DTensors of some records."""
    found: Meshes = {}
    rank = run.rank.number or 0
    for call, form in ((run.calls[order], run.forms[order]) for order in orders):
        for number in _placed_in(form) if not collective(call) else ():
            slot, side, base, *_ = form.tensors[number]
            mesh, tensor = json.dumps(base["device_mesh"]), run.tensor(call.order, number)
            parts: dict[Cut, Piles] = {None: {global_form(tensor): (1 << rank, tensor)}}
            at = places_on(mesh).get(rank)
            known = mark(tensor)
            if at is not None and known is not None:
                cuts = zip(at, base["placements"], strict=False)
                cut = tuple(None if "Replicate" in placed else i for i, placed in cuts)
                parts[cut] = {known: (1 << rank, tensor)}
            made = call if call.rank is run.rank else call.of(run.rank)
            found.setdefault(mesh, {})[call.name, slot] = Placed(made, rank, side, parts)
    return found


@lru_cache(maxsize=1024)
def _placed_in(form: RecordForm) -> tuple[int, ...]:
    return tuple(number for number, x in enumerate(form.tensors) if is_placed(x[2]))


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


def settled_mesh(placed: Mapping[tuple[str, str], Placed]) -> Iterator[tuple[Call, Expected]]:
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
