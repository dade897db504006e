"""Tap the gradients of a call's inputs and outputs without inserting anything in the autograd graph.

`torch.nn.Module.register_full_backward_hook` puts identity nodes around a module; they break in-place modules
and change the order in which gradients accumulate, so the bits of the run move. Here, instead, the edges of a
call's inputs are remembered on entry. On exit the graph is walked from the outputs, stopping at what is older
than the entry, and a hook goes on each node that has an edge into an input, and on each node that made an
output. What those edges carry, summed, is the call's own contribution to the gradient of that input.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from probe_format.values import ValuePath
from probe_runtime.collect import Autograd, Emit, GradientTap, untold

from probe_torch.tensors.sums import numberless, plus

from .input_edges import InputEdges, transform, whole
from .leaf_gradients import watch
from .nodes import NodeCall, Nodes, add_consumers, hook_node
from .written_views import WrittenView, geometry, written_through

_C: Any = torch._C
_sequence: Callable[[], int] = _C._autograd._get_sequence_nr

Found = Sequence[tuple[ValuePath, torch.Tensor]]


def enter(tensors: Found, positional: int = 0) -> InputEdges | None:
    """Return where gradients of these inputs would go; None when gradients are off."""
    if not torch.is_grad_enabled():
        return None
    inputs = InputEdges(_sequence(), transform() is not None)
    indexes, paths = inputs.indexes, inputs.paths
    new = 0
    for path, t in whole(tensors) if inputs.batched else tensors:
        index = None
        if t.requires_grad:
            try:
                node = t.grad_fn
            except (
                RuntimeError
            ):  # torch follows this view no more, because its base was written: no gradient comes
                continue
            key: Any = id(t) if node is None else (node, t.output_nr)
            if key in indexes:
                index = indexes[key]
                paths[index].append(path)
            else:
                indexes[key] = index = new
                paths[new] = [path]
                new += 1
        if t._base is not None:
            inputs.views[id(t)] = index
    return inputs


def flows(outputs: Found) -> bool:
    """Return whether a gradient will come to any of these outputs."""
    for _, t in outputs:
        if t.requires_grad:
            return True
    return transform() is not None and any(t.requires_grad for _, t in whole(outputs))


def attach(inputs: InputEdges, outputs: Found, keep: Callable[[GradientTap], None], emit: Emit) -> list[Any]:
    """Hook the graph between the inputs and the outputs of a call. Return the handles; [] if no gradient flows.

    outputs: (path in the outputs, tensor).
    keep: called with the tap when it may be left with sums that are never complete.
    emit: called with the gradients when they have come.
    """
    indexes, views = inputs.indexes, inputs.views
    nodes: Nodes = {}
    written: dict[Any, list[WrittenView]] = {}
    leaves: dict[int, tuple[torch.Tensor, list[tuple[int, ValuePath]]]] = {}
    passed_on: dict[Any, int] = {}
    again = False
    for path, t in whole(outputs) if inputs.batched else outputs:
        if not t.requires_grad:
            continue
        if views and id(t) in views and (node := written_through(t, inputs.since)) is not None:
            written.setdefault(node, []).append(WrittenView(path, views[id(t)], geometry(t)))
            nodes.setdefault(node, ([], []))
            continue
        try:
            node, nr = t.grad_fn, t.output_nr
        except RuntimeError:  # torch follows this view no more
            continue
        key: Any
        if node is None:
            key = id(t)
            again = again or key in leaves
            leaves.setdefault(key, (t, []))[1].append((0, path))
        else:
            key = node, nr
            if node in nodes:
                again = True
                nodes[node][0].append((nr, path))
            else:
                nodes[node] = ([(nr, path)], [])
        if key in indexes:
            passed_on[key] = indexes[key]
    if not nodes and not leaves:
        return []
    need, sums, casts = add_consumers(inputs, nodes)
    # An input may be used and also passed on untouched. What flows through the part passed on cannot be separated
    # from what others sent to the same tensor, so only the share of the uses is recorded. Where it alone is returned,
    # its whole gradient is.
    through: dict[Any, list[tuple[int, int]]] = {}
    unknown: tuple[Any, ...] = ()
    if passed_on or again:
        unknown = untold(_places(nodes, leaves), passed_on, set(need))
    for key, index in passed_on.items() if passed_on else ():
        if index not in need:
            need[index] = 1
            node, nr = (key, 0) if key in leaves else key
            through.setdefault(node, []).append((nr, index))
    for parts in written.values() if written else ():
        for view in parts:
            if view.index is not None:
                sums = sums or view.index in need
                need[view.index] = need.get(view.index, 0) + 1
    several: Sequence[ValuePath] = ()
    if len(nodes) + len(leaves) > 1:  # else all gradients of a pass come at once
        several = [path for made, _ in nodes.values() for _, path in made]
        several += [path for _, places in leaves.values() for _, path in places] if leaves else ()
        several += [view.path for parts in written.values() for view in parts] if written else ()
    tap = GradientTap(_AUTOGRAD, emit, inputs.paths, need, several, *unknown)
    if sums:
        keep(tap)
    handles: list[Any] = []
    for node in nodes:
        call = NodeCall(tap, *nodes[node])
        if through or written or casts:
            call.through, call.written = through.get(node, ()), written.get(node, ())
            call.casts = casts.get(node)
        handle = hook_node(node, call)
        if handle is not None:
            handles += (handle,)
    for which, (leaf, places) in leaves.items() if leaves else ():
        handles.append(watch(leaf, tap, places, through.get(which, ())))
    return handles


def _places(
    nodes: Nodes, leaves: Mapping[int, tuple[torch.Tensor, list[tuple[int, ValuePath]]]]
) -> dict[Any, list[ValuePath]]:
    """Return for each different tensor among the outputs its paths."""
    found: dict[Any, list[ValuePath]] = {
        key: [path for _, path in places] for key, (_, places) in leaves.items()
    }
    for node, (made, _) in nodes.items():
        for nr, path in made:
            found.setdefault((node, nr), []).append(path)
    return found


_AUTOGRAD = Autograd(_C._current_graph_task_id, plus, numberless)
