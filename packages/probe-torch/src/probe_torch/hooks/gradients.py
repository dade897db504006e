"""Tap the gradients of a call's inputs and outputs without inserting anything in the autograd graph.

`torch.nn.Module.register_full_backward_hook` puts identity nodes around a module; they break in-place modules
and change the order in which gradients accumulate, so the bits of the run move. Here, instead, the edges of a
call's inputs are remembered on entry. On exit the graph is walked from the outputs, as far as nodes that are older
than the entry, and a hook goes on each node that has an edge into an input, and on each node that made an
output. The sum of what all edges into an input carry is the call's own contribution to the gradient of that input.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from probe_format.excerpts import unsignalled
from probe_format.values import ValuePath
from probe_runtime.collect import Autograd, Emit, GradientTap, untold

from probe_torch.tensors.sums import numberless, plus

from .leaf_gradients import watch
from .nodes import Found, InputEdges, NodeCall, Nodes, add_consumers, hook_node, sequence, transforms, whole
from .written_views import WrittenView, base_of, geometry, written_through

_C: Any = torch._C
# torch's own attributes of a tensor, even if its class overrides them. (A plain attribute is found faster.)
_requires_grad, _grad_fn, _output_nr = (
    getattr(_C.TensorBase, name).__get__ for name in ("requires_grad", "grad_fn", "output_nr")
)


def enter(tensors: Found, positional: int = 0) -> InputEdges | None:
    """Return the gradient edges of a call's inputs; None when gradients are off."""
    if not torch.is_grad_enabled():
        return None
    inputs = InputEdges(sequence(), transforms())
    indexes, paths = inputs.indexes, inputs.paths
    new = 0
    for path, t in whole(tensors) if inputs.batched else tensors:
        index = None
        try:
            needs, base = t.requires_grad, t._base
        except unsignalled(Exception):
            needs, base = _requires_grad(t), base_of(t)
        if needs:
            try:
                node = t.grad_fn
                key: Any = id(t) if node is None else (node, t.output_nr)
            except unsignalled(Exception):
                if (key := _key(t)) is None:
                    continue
            if key in indexes:
                index = indexes[key]
                paths[index] += (path,)
            else:
                indexes[key] = index = new
                paths += ((path,),)
                new += 1
        if base is not None:
            inputs.views[id(t)] = index, _grad_fn(base)
    return inputs


def _key(t: torch.Tensor) -> Any:
    """Return the key of a tensor in `InputEdges.indexes`, by torch's own attributes: a user's class may raise.

    None for a view that torch no longer follows, because its base was written.
    """
    try:
        node = _grad_fn(t)
    except RuntimeError:
        return None
    return id(t) if node is None else (node, _output_nr(t))


def flows(outputs: Found) -> bool:
    """Return whether a gradient will come to any of these outputs."""
    try:
        for _, t in outputs:
            if t.requires_grad:
                return True
    except unsignalled(Exception):  # a class of the user's
        return any(_requires_grad(t) for _, t in whole(outputs))
    return transforms() and any(t.requires_grad for _, t in whole(outputs))


class _Outputs:
    """The outputs of a call, as autograd's graph has them.

    nodes: the nodes that made them, to be hooked.
    leaves: id of an output that no node made -> the tensor, and (0, path) for each of its places.
    written: node -> the views that were written in place through it.
    passed_on: key (as in `InputEdges.indexes`) of an output that is an input, untouched -> index of the input.
    is_repeated: whether a tensor is in several places.
    """

    __slots__ = ("is_repeated", "leaves", "nodes", "passed_on", "written")

    def __init__(self, inputs: InputEdges, outputs: Found) -> None:
        indexes, views = inputs.indexes, inputs.views
        self.nodes: Nodes = {}
        self.leaves: dict[int, tuple[torch.Tensor, list[tuple[int, ValuePath]]]] = {}
        self.written: dict[Any, list[WrittenView]] = {}
        self.passed_on: dict[Any, int] = {}
        self.is_repeated = False
        nodes = self.nodes
        for path, t in whole(outputs) if inputs.batched else outputs:
            try:
                needs = t.requires_grad
            except unsignalled(Exception):
                needs = _requires_grad(t)
            if not needs:
                continue
            if views and id(t) in views and (node := written_through(t, views[id(t)][1])) is not None:
                self.written.setdefault(node, []).append(WrittenView(path, views[id(t)][0], geometry(t)))
                nodes.setdefault(node, ([], []))
                continue
            try:
                node, nr = t.grad_fn, t.output_nr
                key: Any = id(t) if node is None else (node, nr)
            except unsignalled(Exception):
                if (key := _key(t)) is None:
                    continue
                node, nr = key if type(key) is tuple else (None, 0)
            if node is None:
                self.is_repeated |= key in self.leaves
                self.leaves.setdefault(key, (t, []))[1].append((0, path))
            elif node in nodes:
                self.is_repeated = True
                nodes[node][0].append((nr, path))
            else:
                nodes[node] = ([(nr, path)], [])
            if key in indexes:
                self.passed_on[key] = indexes[key]

    def pass_through(self, need: dict[int, int]) -> dict[Any, list[tuple[int, int]]]:
        """Return node, or id of a leaf -> (output number, index of an input) where the input's whole gradient comes.

        An input may be used by the call and also passed on untouched. What flows through the part passed on cannot
        be separated from what others sent to the same tensor, so only the share of the uses is recorded. Of an input
        that is only passed on, the whole gradient is recorded.

        need: index of an input -> how many shares make up its gradient; the inputs found here are added.
        """
        through: dict[Any, list[tuple[int, int]]] = {}
        for key, index in self.passed_on.items():
            if index not in need:
                need[index] = 1
                node, nr = (key, 0) if key in self.leaves else key
                through.setdefault(node, []).append((nr, index))
        return through

    def add_views(self, need: dict[int, int]) -> bool:
        """Add the shares that come through written views to ``need``; return whether an input has several."""
        sums = False
        for index in [view.index for parts in self.written.values() for view in parts]:
            if index is not None:
                sums |= index in need
                need[index] = need.get(index, 0) + 1
        return sums

    def paths(self) -> list[ValuePath]:
        """Return the path of each output."""
        found = [path for made, _ in self.nodes.values() for _, path in made]
        if self.leaves:
            found += [path for _, places in self.leaves.values() for _, path in places]
        if self.written:
            found += [view.path for parts in self.written.values() for view in parts]
        return found

    def places(self) -> dict[Any, list[ValuePath]]:
        """Return key of an output, or id of a leaf -> every path where that tensor is."""
        found: dict[Any, list[ValuePath]] = {
            key: [path for _, path in places] for key, (_, places) in self.leaves.items()
        }
        for node, (made, _) in self.nodes.items():
            for nr, path in made:
                found.setdefault((node, nr), []).append(path)
        return found


def attach(inputs: InputEdges, outputs: Found, keep: Callable[[GradientTap], None], emit: Emit) -> list[Any]:
    """Hook the graph between the inputs and the outputs of a call. Return the handles; [] if no gradient flows.

    outputs: (path in the outputs, tensor).
    keep: called with the tap when it may be left with sums that are never complete.
    emit: called with the gradients when they have come.
    """
    out = _Outputs(inputs, outputs)
    nodes, leaves, written = out.nodes, out.leaves, out.written
    if not nodes and not leaves:
        return []
    need, sums, casts, unsure = add_consumers(inputs, nodes)  # which adds nodes
    through: dict[Any, list[tuple[int, int]]] = {}
    unknown: tuple[Any, ...] = (unsure,) if unsure else ()
    if out.passed_on or out.is_repeated:
        unknown = untold(out.places(), out.passed_on, set(need))
        unknown[0].update(unsure)
        through = out.pass_through(need)
    if written and out.add_views(need):
        sums = True
    # Where one node brings all gradients of a pass, they come at once.
    several = tuple(out.paths()) if len(nodes) > 1 or leaves else ()
    tap = GradientTap(_AUTOGRAD, emit, _shared((*inputs.paths,)), need, several, *unknown)
    if sums or unsure:
        keep(tap)
    handles: list[Any] = []
    for node in nodes:
        made, consumed = nodes[node]
        call = NodeCall(tap, _shared((*made,)), _shared((*consumed,)))
        if through or written or casts:
            call.through, call.written = through.get(node, ()), written.get(node, ())
            call.casts = casts.get(node)
        handle = hook_node(node, call)
        if handle is not None:
            handles += (handle,)
    for which in leaves:
        handles.append(watch(leaves[which][0], tap, leaves[which][1], through.get(which, ())))
    return handles


#: Returns one tuple for all equal ones: Python's garbage collector would visit every tuple that a step keeps.
_shared: Callable[[tuple[Any, ...]], tuple[Any, ...]] = functools.lru_cache(4096)(tuple)
_AUTOGRAD = Autograd(_C._current_graph_task_id, plus, numberless)
