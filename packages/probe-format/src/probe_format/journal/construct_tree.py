"""Find parents in construct.json's tree: of a node, and of the node of its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from probe_format.names import with_direction


def closed(construct: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the tree with every parent present, also modules without gradients of their own."""
    absent = [p for p in construct.values() if p is not None and p not in construct]
    return {**construct, **missing(absent, construct.get, construct.__contains__)}


def missing(
    absent: Iterable[str], parent_of: Callable[[str], str | None], known: Callable[[str], bool]
) -> dict[str, str | None]:
    """Return the nodes that a tree lacks, with their parents.

    absent: the parents in the tree that are no nodes.
    parent_of: takes a node and returns its parent.
    known: takes a name and returns whether it is a node.
    """
    out: dict[str, str | None] = {}
    todo = list(absent)
    while todo:
        name = todo.pop()
        if name in out or known(name):
            continue
        forward = with_direction(name, "forward")
        above = parent_of(forward) if name != forward and known(forward) else None
        parent = above and with_direction(above, "backward")
        out[name] = parent
        if parent is not None:
            todo.append(parent)
    return out
