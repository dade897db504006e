"""Say which tensors of a call replicas should agree on, and why, and what a tensor or a call is for that question.

Of a tensor: whether its record says that it is divided among ranks, or how it lies on them. Of a call: whether it
belongs to the update, whether it may return something else each time (random numbers, memory that nobody wrote), and
whether it only moves or cuts what is there.
"""

from collections.abc import Mapping
from typing import Any

from attrs import frozen
from probe_format.names import CLIP_GRAD, OPTIMIZER
from probe_format.schema import Value

from probe_analysis.calls.run import Call

from .disagreement import Reason
from .held import Held


def is_placed(tensor: Mapping[str, Any]) -> bool:
    """Return whether the record says how the tensor lies on the ranks (DTensor)."""
    return isinstance(tensor.get("placements"), list) and isinstance(tensor.get("device_mesh"), list)


def is_divided(tensor: Mapping[str, Any]) -> bool:
    """Return whether a tensor lies on a mesh, or its record says that it is only a part of one."""
    if is_placed(tensor):
        return True
    layout = tensor.get("layout")
    if isinstance(layout, dict):  # MindSpore
        return any(axis != -1 for axis in _flat(layout.get("Tensor Map") or ()))
    return isinstance(tensor.get("hsdp_shard_size"), int) and tensor["hsdp_shard_size"] > 1


def _flat(items: Any) -> list[Any]:
    return [x for item in items for x in (_flat(item) if isinstance(item, list | tuple) else [item])]


#: Nodes of construct.json around what works on the reduced gradients.
_UPDATES = (OPTIMIZER, CLIP_GRAD)
#: Parts of the names of functions that draw random numbers, or return what was in memory.
_CHANCE = (
    "rand", "dropout", "empty", "bernoulli", "normal", "uniform", "multinomial", "exponential", "geometric", "cauchy",
    "gumbel", "rrelu", "fractional", "poisson", "attention", "lstm", "gru", "rnn", "resize", "new_",
)  # fmt: skip
#: Functions that only move or cut what is there, which may be memory that nobody wrote.
_MOVES = frozenset((
    "narrow", "split", "split_with_sizes", "split_with_sizes_copy", "tensor_split", "chunk", "unbind", "select",
    "index_select", "__getitem__", "as_strided", "view", "view_as", "reshape", "detach", "clone", "contiguous", "to",
    "cuda", "npu", "copy_", "_foreach_copy_",
))  # fmt: skip


@frozen(eq=False)
class Expected:
    """Hold a tensor that some ranks should agree on.

    held: which ranks hold which content; None where there are more contents than are kept.
    tolerance: the level of difference that rounding explains; 0 where there should be none at all.
    """

    reason: Reason
    slot: str
    held: Held | None
    tolerance: float = 0.0


def in_update(call: Call) -> bool:
    """Return whether a call is made by the optimizer or by gradient clipping, or records what the optimizer gets."""
    return call.kind == "optimizer_grad" or call.parent in _UPDATES


def draws(call: Call) -> bool:
    """Return whether a function returns something else each time, or what was in memory."""
    return any(word in call.what for word in _CHANCE)


def moves(call: Call) -> bool:
    """Return whether a function only moves or cuts what is there."""
    return call.what in _MOVES


def reason_of(call: Call, value: Value, *, updates: bool, weights: bool) -> Reason | None:
    """Return why replicas should agree on a tensor of a call; None where they need not.

    updates: whether the replicas update the same weights (a sharded optimizer does not).
    weights: whether modules' parameters are recorded; else the weights that functions get stand for them.
    """
    if call.kind == "module" and not call.backward and value.side == "parameter":
        return None if value.slot.startswith("buffers.") else "weight"  # running statistics are a rank's own
    is_weight = call.role(value.slot) in ("weight", "bias")  # for dumps without modules
    if not weights and is_weight and value.tensor.get("requires_grad"):
        return "weight"
    return "update" if updates and in_update(call) else None
