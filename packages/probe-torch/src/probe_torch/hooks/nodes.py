"""Walk the graph of a call, from its outputs to what is older than the call."""

from __future__ import annotations

from typing import Any

import torch
from probe_format.values import ValuePath

from .input_edges import InputEdges

__all__ = ["Nodes", "add_consumers"]

#: Nodes to hook -> [(output number, path) of an output that it made], [(edge number, index of the input) that it uses].
Nodes = dict[Any, tuple[list[tuple[int, ValuePath]], list[tuple[int, int]]]]

_C: Any = torch._C
_AccumulateGrad = _C._functions.AccumulateGrad
_Cast = _C._functions.ToCopyBackward0
_MAX_NODES = 200_000


def add_consumers(
    inputs: InputEdges, nodes: Nodes
) -> tuple[dict[int, int], bool, dict[Any, dict[int, torch.dtype]]]:
    """Add the nodes made since the entry with edges into its inputs, walking from ``nodes``.

    Returns for each input that is used the number of its edges; whether there are several of one; and the edges that
    end at a cast of an input and carry another dtype than the input: node -> {edge number: dtype of the input}.
    """
    indexes, since = inputs.indexes, inputs.since
    need: dict[int, int] = {}
    sums = False
    casts: dict[Any, dict[int, torch.dtype]] = {}
    if not indexes:
        return need, sums, casts
    todo = list(nodes)
    visited = set(todo)
    for count, node in enumerate(todo):  # which grows meanwhile
        if count == _MAX_NODES:
            raise RuntimeError(f"more than {_MAX_NODES} autograd nodes inside one call")
        if node._sequence_nr() < since:
            continue
        used: list[tuple[int, int]] = []
        for i, (following, nr) in enumerate(node.next_functions):
            if following is None:
                continue
            if type(following) is _AccumulateGrad:
                key: Any = id(following.variable)
            else:
                key = following, nr
                if key not in indexes:
                    leaf = _cast_leaf(following) if type(following) is _Cast else None
                    if leaf is not None and id(leaf) in indexes:
                        key = id(leaf)
                        casts.setdefault(node, {})[i] = leaf.dtype
                    elif following not in visited:
                        visited.add(following)
                        todo += (following,)
            if key in indexes:
                index = indexes[key]
                if index in need:
                    need[index] += 1
                    sums = True
                else:
                    need[index] = 1
                used += ((i, index),)
        if used:
            nodes[node] = nodes[node][0] if node in nodes else [], used
    return need, sums, casts


def _cast_leaf(cast: Any) -> Any:
    """Return the leaf that autocast casts with this node; None for another cast.

    Autocast casts a parameter once for all calls that use it. The gradient that leaves this one cast is the sum over
    all of them, so what a single call sends back is what arrives there.
    """
    if not (_C._is_any_autocast_enabled() and torch.is_autocast_cache_enabled()):
        return None
    source = cast.next_functions[0][0]
    return source.variable if type(source) is _AccumulateGrad else None
