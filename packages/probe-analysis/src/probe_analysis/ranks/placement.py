"""Tell from a tensor's placement which ranks hold copies of it, and which hold other parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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


def global_form(tensor: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what every rank of a mesh must say alike of a placed tensor: dtype, whole shape, placements."""
    return str(tensor["dtype"]), str(tensor.get("global_shape")), str(tensor["placements"])


def copies(tensors: Mapping[int, Mapping[str, Any]]) -> list[dict[int, Mapping[str, Any]]]:
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
