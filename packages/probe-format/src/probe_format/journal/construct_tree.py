"""construct.json as a tree: the parent of a node, and of the node that stands for its gradients."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["backward_of", "closed", "forward_of"]


def closed(construct: Mapping[str, str | None]) -> dict[str, str | None]:
    """The tree with every parent present: a module without gradients of its own is still one."""
    out = dict(construct)
    todo = [p for p in construct.values() if p is not None and p not in construct]
    while todo:
        name = todo.pop()
        if name in out:
            continue
        above = construct.get(forward_of(name)) if name != forward_of(name) else None
        parent = above and backward_of(above)
        out[name] = parent
        if parent is not None:
            todo.append(parent)
    return out


def forward_of(name: str) -> str:
    """The forward record that a backward record belongs to."""
    return _swap(name, "backward", "forward")


def backward_of(name: str) -> str:
    """The backward record that belongs to a forward record."""
    return _swap(name, "forward", "backward")


def _swap(name: str, old: str, new: str) -> str:
    """Exchange the direction of a record name: the last part of an API's, the one before of a module's."""
    parts = name.split(".")
    for i in (len(parts) - 1, len(parts) - 2):
        if i > 0 and parts[i] == old:
            parts[i] = new
            return ".".join(parts)
    return name
