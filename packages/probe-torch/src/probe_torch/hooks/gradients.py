"""Tap the gradients of a call's inputs and outputs without inserting anything in the autograd graph.

`torch.nn.Module.register_full_backward_hook` puts identity nodes around a module; they break in-place modules
and change the order in which gradients accumulate, so the bits of the run move. Here, instead, the edges of a
call's inputs are remembered on entry. On exit the graph is walked from the outputs, stopping at what is older
than the entry, and a hook goes on each node that has an edge into an input, and on each node that made an
output. What those edges carry, summed, is the call's own contribution to the gradient of that input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field, frozen
from probe_format.values import ValuePath
from probe_runtime.collect import Autograd, Emit, GradientTap, guarded
from torch.nn.parameter import is_lazy

from probe_torch.aside import apart, aside
from probe_torch.tensors.sums import plus

from .leaf_gradients import watch

__all__ = ["InputEdges", "attach", "enter", "flows"]

_C: Any = torch._C
_AccumulateGrad = _C._functions.AccumulateGrad
_Cast = _C._functions.ToCopyBackward0
_base: Any = _C.TensorBase  # its methods are not patched, so a hook's own calls are not recorded
_sequence: Callable[[], int] = _C._autograd._get_sequence_nr
_MAX_NODES = 200_000
_functorch: Any = _C._functorch
_level: Callable[[], Any] = _functorch.peek_interpreter_stack

Grads = tuple[torch.Tensor | None, ...]


@define
class InputEdges:
    """Hold the gradient edges of a call's inputs, as they were when the call was entered.

    since: autograd's sequence number at the entry; nodes made later have this one or a higher one.
    edges: (node, output number) -> index into paths.
    leaves: id of a leaf tensor -> index into paths.
    paths: for each different input tensor, every place in the arguments where it is.
    views: id of an input that is a view -> its index into paths, None if it needed no gradient.
    """

    since: int
    edges: dict[tuple[Any, int], int] = field(factory=dict)
    leaves: dict[int, int] = field(factory=dict)
    paths: list[list[ValuePath]] = field(factory=list)
    views: dict[int, int | None] = field(factory=dict)


@apart
def enter(tensors: Sequence[tuple[ValuePath, torch.Tensor]]) -> InputEdges | None:
    """Return where gradients of these inputs would go; None when gradients are off."""
    if not torch.is_grad_enabled():
        return None
    inputs = InputEdges(_sequence())
    for path, t in _whole(tensors):
        if not t.requires_grad:
            if not is_lazy(t) and t._is_view():
                inputs.views[id(t)] = None
            continue
        node = t.grad_fn
        if node is None:
            index = inputs.leaves.setdefault(id(t), len(inputs.paths))
        else:
            index = inputs.edges.setdefault((node, t.output_nr), len(inputs.paths))
        if index == len(inputs.paths):
            inputs.paths.append([path])
        else:
            inputs.paths[index].append(path)
        if not is_lazy(t) and t._is_view():
            inputs.views[id(t)] = index
    return inputs


@apart
def flows(outputs: Sequence[tuple[ValuePath, torch.Tensor]]) -> bool:
    """Return whether a gradient will come to any of these outputs."""
    return any(t.requires_grad for _, t in _whole(outputs))


def _whole(tensors: Sequence[tuple[ValuePath, torch.Tensor]]) -> Sequence[tuple[ValuePath, torch.Tensor]]:
    """Return the tensors; for one that `torch.func.vmap` batches, the whole tensor, which autograd follows."""
    if _level() is None:
        return tensors
    found = []
    for path, t in tensors:
        while _functorch.is_batchedtensor(t):
            t = _functorch.get_unwrapped(t)
        found.append((path, t))
    return found


@apart
def attach(
    inputs: InputEdges,
    outputs: Sequence[tuple[ValuePath, torch.Tensor]],
    keep: Callable[[GradientTap], None],
    emit: Emit,
) -> list[Any]:
    """Hook the graph between the inputs and the outputs of a call. Return the handles; [] if no gradient flows.

    outputs: (path in the outputs, tensor).
    keep: called with the tap when it may be left with sums that are never complete.
    emit: called with the gradients when they have come.
    """
    sinks: dict[Any, list[tuple[int, ValuePath]]] = {}
    written: dict[Any, list[_Written]] = {}
    leaves: dict[int, tuple[torch.Tensor, list[tuple[int, ValuePath]]]] = {}
    for path, t in _whole(outputs):
        if not t.requires_grad:
            continue
        if id(t) in inputs.views and (node := _written_through(t, inputs.since)) is not None:
            written.setdefault(node, []).append(_Written(path, inputs.views[id(t)], _geometry(t)))
            continue
        node = t.grad_fn
        if node is None:
            leaves.setdefault(id(t), (t, []))[1].append((0, path))
        else:
            sinks.setdefault(node, []).append((t.output_nr, path))
    if not sinks and not written and not leaves:
        return []
    consumers, casts = _consumers(inputs, {**sinks, **written})
    through = {
        node: [
            (nr, inputs.edges[node, nr]) for nr in {nr: None for nr, _ in made} if (node, nr) in inputs.edges
        ]
        for node, made in sinks.items()
    }
    # An input may be used and also passed on untouched. What flows through the part passed on cannot be separated
    # from what others sent to the same tensor, so only the share of the uses is recorded. Without uses the whole
    # gradient is.
    used = {index for found in consumers.values() for _, index in found}
    through = {node: [f for f in found if f[1] not in used] for node, found in through.items()}
    through_leaf = {
        which: [(0, index)] if (index := inputs.leaves.get(which)) is not None and index not in used else []
        for which in leaves
    }
    need = [0] * len(inputs.paths)
    for found in (*consumers.values(), *through.values(), *through_leaf.values()):
        for _, index in found:
            need[index] += 1
    for views in written.values():
        for view in views:
            if view.index is not None:
                need[view.index] += 1
    tap = GradientTap(_AUTOGRAD, emit, inputs.paths, need)
    if any(n > 1 for n in need):
        keep(tap)
    handles = []
    for node in {**sinks, **written, **consumers}:
        hook = _hook(
            tap,
            sinks.get(node, ()),
            through.get(node, ()),
            consumers.get(node, ()),
            written.get(node, ()),
            casts.get(node),
        )
        handles.append(node.register_hook(guarded("a gradient", "its arrival at a node", hook)))
    handles += [watch(leaf, tap, made, through_leaf[which]) for which, (leaf, made) in leaves.items()]
    return handles


@frozen
class _Written:
    """Describe a view that the call wrote in place.

    path: its path among the outputs.
    index: its index among the inputs; None if it needed no gradient then.
    geometry: size, stride and offset within its base (in elements), then the size and stride of the base.
    """

    path: ValuePath
    index: int | None
    geometry: tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...], tuple[int, ...]]

    def cut(self, g: torch.Tensor | None) -> torch.Tensor | None:
        """Return the view's part of its base's gradient."""
        if g is None:
            return None
        size, stride, offset, base_size, base_stride = self.geometry
        g = _base.detach(g)
        if tuple(_base.stride(g)) != base_stride:
            laid_out = torch._C._VariableFunctions.empty_strided(
                base_size, base_stride, dtype=g.dtype, device=g.device
            )
            g = _base.copy_(laid_out, g)
        return _base.as_strided(g, size, stride, offset + _base.storage_offset(g))  # type: ignore[no-any-return]


def _written_through(t: torch.Tensor, since: int) -> Any:
    """Return the node that a write into the view ``t`` made in its base's graph since the entry, else None."""
    base = t._base
    node = None if base is None else base.grad_fn
    if node is not None and type(node).__name__ == "CopySlices" and node._sequence_nr() >= since:
        return node
    return None


def _geometry(t: torch.Tensor) -> Any:
    base = t._base
    assert base is not None
    offset = t.storage_offset() - base.storage_offset()
    return tuple(t.shape), tuple(t.stride()), offset, tuple(base.shape), tuple(base.stride())


def _consumers(
    inputs: InputEdges, roots: dict[Any, Any]
) -> tuple[dict[Any, list[tuple[int, int]]], dict[Any, dict[int, torch.dtype]]]:
    """Return the nodes made since the entry with edges into its inputs, and the edges that carry another dtype.

    The nodes are node -> [(edge number, index of the input)]. The edges are node -> {edge number: dtype of the
    input}; they end at a cast of the input and not at the input.
    """
    edges, leaves, since = inputs.edges, inputs.leaves, inputs.since
    out: dict[Any, list[tuple[int, int]]] = {}
    casts: dict[Any, dict[int, torch.dtype]] = {}
    if not edges and not leaves:
        return out, casts
    # Autocast casts a parameter once for all calls that use it. The gradient that leaves this one cast is the sum
    # over all of them, so what a single call sends back is what arrives there.
    autocast = bool(leaves) and _C._is_any_autocast_enabled() and torch.is_autocast_cache_enabled()
    todo = [node for node in roots if node._sequence_nr() >= since]
    visited = set(todo)
    while todo:
        node = todo.pop()
        for i, (following, nr) in enumerate(node.next_functions):
            if following is None:
                continue
            if type(following) is _AccumulateGrad:
                index = leaves.get(id(following.variable))
            else:
                index = edges.get((following, nr))
                if index is None and autocast and type(following) is _Cast:
                    leaf = _leaf_of(following)
                    index = leaves.get(id(leaf))
                    if index is not None:
                        casts.setdefault(node, {})[i] = leaf.dtype
                if index is None and following not in visited and following._sequence_nr() >= since:
                    visited.add(following)
                    todo.append(following)
                    if len(visited) > _MAX_NODES:
                        raise RuntimeError(f"more than {_MAX_NODES} autograd nodes inside one call")
            if index is not None:
                out.setdefault(node, []).append((i, index))
    return out, casts


def _leaf_of(cast: Any) -> Any:
    """Return the leaf that a node casts; None if it casts another tensor."""
    source = cast.next_functions[0][0]
    return source.variable if type(source) is _AccumulateGrad else None


def _hook(
    tap: GradientTap,
    made: Sequence[tuple[int, ValuePath]],
    through: Sequence[tuple[int, int]],
    consumed: Sequence[tuple[int, int]],
    written: Sequence[_Written],
    casts: Mapping[int, torch.dtype] | None,
) -> Callable[[Grads, Grads], None]:
    """Return a hook for a node. It must not refer to the node: the graph owns the hook, and cycles there leak."""

    def hook(grad_inputs: Grads, grad_outputs: Grads) -> None:
        with aside():
            if casts is not None:
                grad_inputs = tuple(
                    g if g is None or i not in casts else _base.to(_base.detach(g), casts[i])
                    for i, g in enumerate(grad_inputs)
                )
            tap.fire(grad_inputs, grad_outputs, made, through, consumed, written)

    return hook


_AUTOGRAD = Autograd(_C._current_graph_task_id, plus)
