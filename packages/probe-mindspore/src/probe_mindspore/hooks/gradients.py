"""Gradient taps that insert nothing in the autograd graph.

MindSpore's own backward hooks put an identity node before and after a Cell: gradients then accumulate in another
order, and the bits of the run move. Here, as in probe-torch, the edges of a call's inputs are remembered on
entry. On exit the graph is walked from the outputs, stopping at what is older than the entry, and a hook goes on
each node that has an edge into an input, and on each node that made an output. What those edges carry, summed,
is the call's own contribution to the gradient of that input.

MindSpore 2.7 does not show its graph: there `tensor_hooks` hooks the tensors themselves, and what is given for an
input is the whole gradient of that tensor (`OWN` is False).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field
from probe_format.values import ValuePath
from probe_runtime.collect import Autograd, Emit, GradientTap, guarded

from . import autograd, tensor_hooks
from .autograd import Handle, in_backward, recording, takes_gradient

__all__ = [
    "OWN",
    "WHY_NOT_OWN",
    "WHY_NO_BEGINNING",
    "InputEdges",
    "attach",
    "begins",
    "enter",
    "in_backward",
    "recording",
    "takes_gradient",
    "watch",
]

#: Whether the gradient given for an input is the call's own contribution, not that of all the tensor's users.
OWN = autograd.GRAPH
WHY_NOT_OWN = (
    "this MindSpore does not show its autograd graph (2.8 and later do): what is given for an input is the "
    "gradient of the whole tensor, from all its users"
)
WHY_NO_BEGINNING = (
    "a Cell that is given to mindspore.grad, value_and_grad or recompute itself begins to record gradients inside its "
    "own call, and this MindSpore does not show its autograd graph (2.8 and later do); give a function that calls it"
)
_MAX_NODES = 200_000

Tensor = Any
Grads = tuple[Tensor | None, ...]


@define
class InputEdges:
    """The gradient edges of a call's inputs, as they were when it was entered.

    since: nodes with a higher number are younger than the call. edges: (key of a node, output number) -> index
    into paths. paths: for each different input tensor, every place in the arguments where it stands. nodes: the
    nodes themselves, so that no other takes the place, and the key, of one that is dropped. whole: what stands
    for all this where there is no graph to see. positional: how many of the arguments have no keyword. late: the
    inputs, where gradients begin to be recorded inside the call.
    """

    since: int
    positional: int = 0
    edges: dict[tuple[Any, int], int] = field(factory=dict)
    paths: list[list[ValuePath]] = field(factory=list)
    nodes: list[Any] = field(factory=list)
    whole: tensor_hooks.InputHooks | None = None
    late: Sequence[tuple[ValuePath, Tensor]] | None = None


class _Beginning(threading.local):
    cell = False


_beginning = _Beginning()


def begins(cell: Any) -> bool:
    """A Cell is about to be called; gives whether MindSpore begins to record gradients inside that very call.

    It does so for a Cell given to `mindspore.grad` directly, or to `mindspore.recompute`: the inputs are then looked
    at when the call is over.
    """
    _beginning.cell = bool(getattr(cell, "requires_grad", False)) and not autograd.grad_flag()
    return _beginning.cell


def enter(tensors: Sequence[tuple[ValuePath, Tensor]], positional: int = 0) -> InputEdges | None:
    """Remember where gradients of these inputs would go; None when no gradients are being recorded.

    positional: how many of the arguments have no keyword; those with one come after them.
    """
    late, _beginning.cell = _beginning.cell, False
    if not recording():
        return InputEdges(-1, positional, late=tensors) if late and OWN else None
    if not OWN:
        return InputEdges(0, whole=tensor_hooks.enter(tensors))
    inputs = InputEdges(autograd.sequence(), positional)
    _look(inputs, tensors)
    return inputs


def _look(inputs: InputEdges, tensors: Sequence[tuple[ValuePath, Tensor]]) -> None:
    for path, t in tensors:
        node = t._grad_node
        if node is None:
            continue
        inputs.nodes.append(node)
        index = inputs.edges.setdefault((autograd.key(node), t._output_index), len(inputs.paths))
        if index == len(inputs.paths):
            inputs.paths.append([path])
        else:
            inputs.paths[index].append(path)


def attach(
    inputs: InputEdges,
    outputs: Sequence[tuple[ValuePath, Tensor]],
    keep: Callable[[GradientTap], None],
    emit: Emit,
) -> list[Handle]:
    """Hook the graph between the inputs and ``outputs``; gives the hook handles (empty: nothing to see).

    keep: told of the tap when it may be left with sums that never became whole.
    """
    late, inputs.late = inputs.late, None
    if late is not None:
        _look(inputs, late)
    if inputs.whole is not None:
        return tensor_hooks.attach(inputs.whole, outputs, emit)
    sinks: dict[Any, _Node] = {}
    handles: list[Handle] = []
    passed_on: list[tuple[ValuePath, Tensor, int | None]] = []
    for path, t in outputs:
        if not takes_gradient(t):
            continue
        node = t._grad_node
        number = autograd.key(node)
        if node._sequence_nr() == autograd.LEAF:
            passed_on.append((path, t, inputs.edges.get((number, t._output_index))))
        else:
            sinks.setdefault(number, _Node(node)).made.append((t._output_index, path))
    nodes = dict(sinks)
    used = _consumers(inputs, nodes)
    # An input that is used and also passed on untouched: what flows through the part passed on cannot be told
    # from what others sent to the same tensor, so the share of the uses is given. Without uses, the whole is.
    for number, sink in sinks.items():
        for nr in {nr for nr, _ in sink.made}:
            index = inputs.edges.get((number, nr))
            if index is not None and index not in used:
                sink.through.append((nr, index))
    paths = _parted(inputs, nodes)
    tap = GradientTap(_AUTOGRAD, emit, paths, [0] * len(paths))
    for node in nodes.values():
        for _, index in (*node.consumed, *node.through):
            tap.need[index] += 1
    for path, t, index in passed_on:  # a leaf's own node calls no hooks: the tensor does
        if index is not None and index not in used:
            tap.need[index] += 1
        else:
            index = None
        handle = autograd.hook_tensor(t, guarded("a leaf", "its gradient's arrival", _leaf_hook(tap, path, index)))
        if handle is not None:
            handles.append(handle)
    if any(n > 1 for n in tap.need):
        keep(tap)
    for node in nodes.values():
        sheds = node.consumed and autograd.is_graph(node.node)
        edges = _Edges(inputs.edges, node.consumed, node.edges, node.shares, node.node if sheds else None)
        handles.append(autograd.hook_node(node.node, _hook(tap, node.made, node.through, edges)))
    return handles


def watch(parameter: Tensor, arrived: Callable[[Tensor], None]) -> Handle | None:
    """Call ``arrived(gradient)`` once in each backward pass that gives this parameter a gradient.

    It is whole then, all uses summed. Passes that are asked for inputs alone give none. None: the parameter
    takes no gradient.
    """

    def hook(gradient: Tensor | None) -> None:
        if gradient is not None:
            arrived(gradient)

    return autograd.hook_tensor(parameter, guarded("a parameter", "its gradient's arrival", hook))


@define
class _Node:
    """A node to hook: the outputs it made, the inputs passed on by it, and its edges into inputs.

    edges: how many it has in all. shares: index of an input that stands in several places -> those of each place.
    """

    node: Any
    edges: int = 0
    shares: dict[int, Sequence[int]] = field(factory=dict)
    made: list[tuple[int, ValuePath]] = field(factory=list)
    through: list[tuple[int, int]] = field(factory=list)
    consumed: list[tuple[int, int]] = field(factory=list)


def _consumers(inputs: InputEdges, nodes: dict[Any, _Node]) -> set[int]:
    """Find nodes made since the entry with edges into its inputs; add them to ``nodes``, the roots of the walk.

    Gives the indexes of the inputs found.
    """
    edges, since = inputs.edges, inputs.since
    used: set[int] = set()
    if not edges:
        return used
    todo = [(number, root.node) for number, root in nodes.items() if root.node._sequence_nr() > since]
    visited = {number for number, _ in todo}
    while todo:
        number, node = todo.pop()
        following_edges = node.next_functions
        for i, (following, nr) in enumerate(following_edges):
            if following is None:
                continue
            target = autograd.key(following)
            index = edges.get((target, nr))
            if index is not None:
                used.add(index)
                nodes.setdefault(number, _Node(node)).consumed.append((i, index))
            elif target not in visited and since < following._sequence_nr() < autograd.LEAF:
                visited.add(target)
                todo.append((target, following))
                if len(visited) > _MAX_NODES:
                    raise RuntimeError(f"more than {_MAX_NODES} autograd nodes inside one call")
        if number in nodes:
            nodes[number].edges = len(following_edges)
    return used


def _parted(inputs: InputEdges, nodes: dict[Any, _Node]) -> list[list[ValuePath]]:
    """The places of each input. A tensor in several places is one input, unless one compiled graph is all that uses
    it: the graph has an edge for each argument, in the order of its signature, and so each place has its own share.
    """
    paths = list(inputs.paths)
    uses = Counter(index for node in nodes.values() for _, index in node.consumed)
    for node in nodes.values():
        if not node.consumed or not autograd.is_graph(node.node):
            continue
        here = Counter(index for _, index in node.consumed)
        for index, number in here.items():
            places = inputs.paths[index]
            # Keywords stand in the order of the call, in which the graph need not have them.
            named = sum(isinstance(p[0], str) or p[0] >= inputs.positional for p in places)
            if len(places) > 1 and number == uses[index] == len(places) and named < 2:
                node.shares[index] = range(len(paths), len(paths) + number)
                paths.extend([place] for place in places)
        node.consumed = _each_its_own(node.consumed, node.shares)
    return paths


def _each_its_own(
    consumed: Sequence[tuple[int, int]], shares: dict[int, Sequence[int]]
) -> list[tuple[int, int]]:
    """The same edges, those into a parted input each into a part. Raises LookupError when some are missing."""
    parts = {index: iter(each) for index, each in shares.items()}
    own = [(i, next(parts[index], -1) if index in parts else index) for i, index in consumed]
    for index, each in shares.items():
        if index in {index for _, index in consumed} and any(part not in {p for _, p in own} for part in each):
            raise LookupError(_TOO_FEW)
    return own


_TOO_FEW = "fewer gradients came for the inputs of a graph than it has, and nothing says of which they are"


@define
class _Edges:
    """Which of the gradients that a node gives are those of the call's inputs.

    The graph of a jitted call has an edge for each tensor among its arguments, and gradients only for those
    arguments that need one. What it leaves out it takes from its edges too, when it runs: so where the numbers
    differ, the edges are looked at again, at that moment.
    """

    inputs: dict[tuple[Any, int], int]
    consumed: Sequence[tuple[int, int]]
    number: int
    shares: dict[int, Sequence[int]] = field(factory=dict)
    node: Any = None

    def of(self, gradients: int) -> Sequence[tuple[int, int]]:
        """(number of the gradient, index of the input), of so many gradients. Raises when nothing can tell."""
        node, self.node = self.node, None  # held no longer: the graph owns the hook, and cycles there leak
        if gradients == self.number or not self.consumed:
            return self.consumed
        now = [] if node is None else node.next_functions
        if len(now) != gradients:
            raise LookupError(_TOO_FEW)
        keys = [None if following is None else (autograd.key(following), nr) for following, nr in now]
        left = [(i, self.inputs[key]) for i, key in enumerate(keys) if key in self.inputs]
        self.consumed, self.number = _each_its_own(left, self.shares), gradients
        return self.consumed


def _hook(
    tap: GradientTap, made: Sequence[tuple[int, ValuePath]], through: Sequence[tuple[int, int]], edges: _Edges
) -> Callable[[Grads, Grads], None]:
    """A node hook."""

    def hook(grad_inputs: Grads, grad_outputs: Grads) -> None:
        tap.fire(grad_inputs, grad_outputs, made, through, edges.of(len(grad_inputs)))

    return hook


def _leaf_hook(tap: GradientTap, path: ValuePath, index: int | None) -> Callable[[Tensor | None], None]:
    """A hook on a leaf. It belongs to no graph: what comes after the first pass is of later calls."""
    first: list[int] = []

    def hook(gradient: Tensor | None) -> None:
        number = autograd.backward_pass()
        if gradient is None or (first and first[0] != number):
            return
        first[:] = [number]
        tap.fire((), (gradient,), [(0, path)], () if index is None else [(0, index)])

    return hook


_AUTOGRAD = Autograd(autograd.backward_pass, autograd.add)
