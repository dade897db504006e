"""Walk the graph of a call, from its outputs to what is older than the call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .input_edges import InputEdges

__all__ = ["Casts", "Consumers", "consumers"]

#: node -> [(edge number, index of the input)]
Consumers = dict[Any, list[tuple[int, int]]]
#: node -> {edge number: dtype of the input}
Casts = dict[Any, dict[int, torch.dtype]]

_C: Any = torch._C
_AccumulateGrad = _C._functions.AccumulateGrad
_Cast = _C._functions.ToCopyBackward0
_MAX_NODES = 200_000


def consumers(inputs: InputEdges, roots: Iterable[Any]) -> tuple[Consumers, Casts, list[int]]:
    """Return the nodes made since the entry with edges into its inputs, the edges that carry another dtype, the need.

    The edges of another dtype end at a cast of the input and not at the input. The need is, for each input, the number
    of its edges.
    """
    indexes, since = inputs.indexes, inputs.since
    found: Consumers = {}
    casts: Casts = {}
    need = [0] * len(inputs.paths)
    if not indexes:
        return found, casts, need
    todo = [node for node in roots if node._sequence_nr() >= since]
    visited = set(todo)
    for count, node in enumerate(todo):  # which grows meanwhile
        if count == _MAX_NODES:
            raise RuntimeError(f"more than {_MAX_NODES} autograd nodes inside one call")
        into: list[tuple[int, int]] = []
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
                    elif following not in visited and following._sequence_nr() >= since:
                        visited.add(following)
                        todo.append(following)
            if key in indexes:
                index = indexes[key]
                need[index] += 1
                into.append((i, index))
        if into:
            found[node] = into
    return found, casts, need


def _cast_leaf(cast: Any) -> Any:
    """Return the leaf that autocast casts with this node; None for another cast.

    Autocast casts a parameter once for all calls that use it. The gradient that leaves this one cast is the sum over all
    of them, so what a single call sends back is what arrives there.
    """
    if not (_C._is_any_autocast_enabled() and torch.is_autocast_cache_enabled()):
        return None
    source = cast.next_functions[0][0]
    return source.variable if type(source) is _AccumulateGrad else None
