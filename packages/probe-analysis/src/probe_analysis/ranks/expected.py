"""Say which tensors of a call ranks should agree on, and why: by what it does, and by where a DTensor is placed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from attrs import frozen
from probe_format.names import CLIP_GRAD, OPTIMIZER
from probe_format.schema import Parts, Value

from probe_analysis.calls.run import Call
from probe_analysis.compare.tolerance import Tolerance

from .compact_run import RecordForm
from .disagreement import Held, Reason, mark, trusted
from .rows import collective


def _is_placed(tensor: Mapping[str, Any]) -> bool:
    """Return whether the record says how the tensor lies on the ranks (DTensor)."""
    return isinstance(tensor.get("placements"), list) and isinstance(tensor.get("device_mesh"), list)


def is_divided(tensor: Mapping[str, Any]) -> bool:
    """Return whether a tensor lies on a mesh, or its record says that it is only a part of one."""
    if _is_placed(tensor):
        return True
    layout = tensor.get("layout")
    if isinstance(layout, dict):  # MindSpore
        return any(axis != -1 for axis in _flat(layout.get("Tensor Map") or ()))
    return isinstance(tensor.get("hsdp_shard_size"), int) and tensor["hsdp_shard_size"] > 1


def global_form(tensor: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what every rank of a mesh must say alike of a placed tensor: dtype, whole shape, placements."""
    return str(tensor["dtype"]), str(tensor.get("global_shape")), str(tensor["placements"])


def copies(tensors: Held) -> list[dict[int, Mapping[str, Any]]]:
    """Return the ranks that hold copies of one another: those at the same place of each dimension that is not
    replicated.

    tensors: rank -> its tensor, all placed in the same way.
    """
    groups: dict[tuple[Any, ...], dict[int, Mapping[str, Any]]] = {}
    for rank, tensor in tensors.items():
        at = _place(tensor["device_mesh"], rank)
        if at is None:
            continue  # this rank is not on the mesh
        cut = tuple(None if "Replicate" in p else i for i, p in zip(at, tensor["placements"], strict=False))
        groups.setdefault((str(tensor["device_mesh"]), *cut), {})[rank] = tensor
    return [group for group in groups.values() if len(group) > 1]


def _place(mesh: Any, rank: int) -> tuple[int, ...] | None:
    """Return where a rank is on a mesh, which is a list of ranks, or of such lists."""
    for i, part in enumerate(mesh):
        if part == rank and not isinstance(part, list):
            return (i,)
        if isinstance(part, list):
            below = _place(part, rank)
            if below is not None:
                return (i, *below)
    return None


def _flat(items: Any) -> list[Any]:
    return [x for item in items for x in (_flat(item) if isinstance(item, list | tuple) else [item])]


#: Nodes of construct.json around what works on the reduced gradients.
_UPDATES = (OPTIMIZER, CLIP_GRAD)
#: Parts of the names of functions that draw random numbers, or return what was in memory.
_CHANCE = (
    "rand", "dropout", "empty", "bernoulli", "normal", "uniform", "multinomial", "exponential", "geometric", "cauchy",
    "gumbel", "rrelu", "fractional", "poisson", "attention", "lstm", "gru", "rnn", "resize", "new_",
)  # fmt: skip


@frozen(eq=False)
class Expected:
    """Hold a tensor that some ranks should agree on.

    tolerance: the relative difference that rounding explains; 0 where there should be none at all.
    """

    reason: Reason
    slot: str
    tensors: Held
    tolerance: float = 0.0


def in_update(call: Call) -> bool:
    """Return whether a call is made by the optimizer, or where gradients are clipped; or is what the optimizer gets."""
    return call.kind == "optimizer_grad" or call.parent in _UPDATES


def may_agree(call: Call, forms: Iterable[RecordForm]) -> bool:
    """Return whether `expected_of` can find something in a call where nothing is asked. forms: of its records."""
    if in_update(call) or (call.kind == "api" and not call.backward):
        return True
    tensors = (each for form in forms for each in form.tensors)
    return any((side == "parameter" and not call.backward) or _is_placed(t) for _, side, t, *_ in tensors)


def expected_of(
    call: Call,
    parts: Mapping[int, Parts],
    groups: Sequence[Sequence[int]],
    *,
    updates: bool,
    weights: bool,
    asked: Sequence[str] = (),
) -> Iterator[Expected]:
    """Yield the tensors of a call that ranks should agree on, and why.

    parts: rank -> what is in its record.
    updates: whether the replicas update the same weights (a sharded optimizer does not).
    weights: whether modules' parameters are recorded; else the weights that functions get stand for them.
    asked: patterns of ``record.slot`` that every rank should agree on.
    """
    by_slot = _by_slot(parts)
    yield from _placed(by_slot)
    for slot, values in by_slot.items():
        if any(fnmatchcase(f"{call.name}.{slot}", pattern) for pattern in asked):
            yield Expected("asked", slot, {rank: value.tensor for rank, value in values.items()})
    plain = {slot: v for slot, v in by_slot.items() if not any(is_divided(x.tensor) for x in v.values())}
    for group in groups:
        for slot, values in plain.items():
            reason = _reason(call, slot, next(iter(values.values())), updates=updates, weights=weights)
            tensors = {rank: values[rank].tensor for rank in group if rank in values}
            if reason is not None and len(tensors) > 1:
                yield Expected(reason, slot, tensors)
    if not in_update(call):
        yield from _computed(call, parts)


def _by_slot(parts: Mapping[int, Parts]) -> dict[str, dict[int, Value]]:
    found: dict[str, dict[int, Value]] = {}
    for rank, part in parts.items():
        for value in part.values:
            found.setdefault(value.slot, {})[rank] = value
    return {slot: values for slot, values in found.items() if len(values) > 1}


def _reason(call: Call, slot: str, value: Value, *, updates: bool, weights: bool) -> Reason | None:
    if call.kind == "module" and not call.backward and value.side == "parameter":
        return "weight"
    is_weight = call.role(slot) in ("weight", "bias")  # for dumps without modules
    if not weights and is_weight and value.tensor.get("requires_grad"):
        return "weight"
    return "update" if updates and in_update(call) else None


def _placed(by_slot: Mapping[str, Mapping[int, Value]]) -> Iterator[Expected]:
    for slot, values in by_slot.items():
        tensors = {rank: value.tensor for rank, value in values.items() if _is_placed(value.tensor)}
        if len(tensors) < 2:
            continue
        own = 0.0 if next(iter(values.values())).side == "parameter" else Tolerance().of(tensors.values())
        if len({global_form(tensor) for tensor in tensors.values()}) > 1:
            yield Expected("form", slot, tensors)
            continue
        for group in copies(tensors):
            yield Expected("placement", slot, group, own)


def _computed(call: Call, parts: Mapping[int, Parts]) -> Iterator[Expected]:
    """Yield the results of a function on the ranks that gave it the same arguments."""
    if call.kind != "api" or call.backward or collective(call) or any(word in call.what for word in _CHANCE):
        return
    same: dict[str, list[int]] = {}
    for rank, part in parts.items():
        took = part.side("in")
        # None has values that come later, or is a view of something else.
        whole = all(v.tensor.get("type") in ("torch.Tensor", "mindspore.Tensor") for v in took)
        if took and whole and all(trusted(v.tensor) for v in took):
            key = repr((sorted((v.slot, mark(v.tensor)) for v in took), part.others))
            same.setdefault(key, []).append(rank)
    for ranks in same.values():
        if len(ranks) > 1:
            tolerance = Tolerance().of([v.tensor for v in parts[ranks[0]].values])
            for slot, values in _by_slot({rank: parts[rank] for rank in ranks}).items():
                first = next(iter(values.values()))
                if first.side == "out":
                    yield Expected("computed", slot, {r: v.tensor for r, v in values.items()}, tolerance)
