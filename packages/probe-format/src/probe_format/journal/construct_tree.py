"""Find parents in construct.json's tree: of a node, and of the node of its gradients."""

from __future__ import annotations

from collections.abc import Mapping

from probe_format.names import with_direction

__all__ = ["closed"]


def closed(construct: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the tree with every parent present, also modules without gradients of their own."""
    out = dict(construct)
    todo = [p for p in construct.values() if p is not None and p not in construct]
    while todo:
        name = todo.pop()
        if name in out:
            continue
        forward = with_direction(name, "forward")
        above = construct.get(forward) if name != forward else None
        parent = above and with_direction(above, "backward")
        out[name] = parent
        if parent is not None:
            todo.append(parent)
    return out
