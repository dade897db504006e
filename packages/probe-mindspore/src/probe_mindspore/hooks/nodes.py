"""Note the edges of a call's inputs, walk from its outputs to nodes older than the call, and find the nodes to hook.

Each of these knows which of its gradients belong to which input. A compiled graph may drop edges when it runs: its
edges are then read once more, in the backward pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from attrs import define, field
from probe_format.excerpts import unsignalled
from probe_format.values import ValuePath

from . import autograd, tensor_hooks


@define
class InputEdges:
    """Hold the gradient edges of a call's inputs, as they were when the call was entered.

    since: the call's own nodes have higher sequence numbers than this.
    positional: the number of arguments without a keyword.
    edges: (key of a node, its output number) -> index into ``paths``.
    paths: for each different input tensor, its places in the arguments.
    nodes: the nodes of ``edges`` by their keys; held, so that their keys are not used again for other nodes.
    hooks: hooks on the inputs themselves, in place of all this where MindSpore does not show its graph.
    late: the inputs, where MindSpore begins to record gradients only inside the call.
    """

    since: int
    positional: int = 0
    edges: dict[tuple[Any, int], int] = field(factory=dict)
    paths: list[list[ValuePath]] = field(factory=list)
    nodes: dict[Any, Any] = field(factory=dict)
    hooks: tensor_hooks.InputHooks | None = None
    late: Sequence[tuple[ValuePath, Any]] | None = None

    def add(self, tensors: Sequence[tuple[ValuePath, Any]]) -> None:
        edges, paths, nodes = self.edges, self.paths, self.nodes
        for path, t in tensors:
            try:
                node = t._grad_node
            except unsignalled(Exception):  # its computation failed, and each look at it raises that again
                continue
            if node is None:
                continue
            number = autograd.key(node)
            edge = number, t._output_index
            if edge in edges:
                paths[edges[edge]].append(path)
            else:
                nodes[number] = node
                edges[edge] = len(paths)
                paths.append([path])


_MAX_NODES = 200_000
TOO_FEW = "fewer gradients came for the inputs of a graph than it has, and nothing says of which they are"


@define
class HookedNode:
    """Describe an autograd node to hook. Indexes of inputs are those of `InputEdges.paths`.

    node: the node.
    edges: the number of all its edges.
    shares: index of an input in several places -> the indexes of its places, where each has a gradient.
    made: (output number of the node, path in the call's outputs) for each output of the call that it made.
    passed_through: (output number, index) for each of these outputs that is an input, unchanged.
    consumed: (edge number, index) for each edge into an input.
    later: finds ``consumed`` anew in the backward pass, for a compiled graph, which may remove edges; else None.
    """

    node: Any
    edges: int = 0
    shares: dict[int, Sequence[int]] = field(factory=dict)
    made: list[tuple[int, ValuePath]] = field(factory=list)
    passed_through: list[tuple[int, int]] = field(factory=list)
    consumed: list[tuple[int, int]] = field(factory=list)
    later: InputGradients | None = None


def add_consumers(inputs: InputEdges, nodes: dict[Any, HookedNode]) -> set[int]:
    """Add the nodes of the call with edges into its inputs to ``nodes``. Return the indexes of the inputs found.

    nodes: by their keys. The walk begins at them and ends at what is older than the call.

    Raises RuntimeError when it meets too many nodes.
    """
    edges, since = inputs.edges, inputs.since
    used: set[int] = set()
    if not edges:
        return used
    todo = [(number, root.node) for number, root in nodes.items() if root.node._sequence_nr() > since]
    visited = set(nodes)
    while todo:
        number, node = todo.pop()
        hooked = nodes.get(number)
        following_edges = node.next_functions
        for i, (following, nr) in enumerate(following_edges):
            if following is None:
                continue
            target = autograd.key(following)
            if (target, nr) in edges:
                index = edges[target, nr]
                used.add(index)
                if hooked is None:
                    hooked = nodes[number] = HookedNode(node)
                hooked.consumed.append((i, index))
            elif target not in visited and since < following._sequence_nr() < autograd.LEAF:
                visited.add(target)
                todo.append((target, following))
                if len(visited) > _MAX_NODES:
                    raise RuntimeError(f"more than {_MAX_NODES} autograd nodes inside one call")
        if hooked is not None:
            hooked.edges = len(following_edges)
    return used


def split_shares(inputs: InputEdges, nodes: dict[Any, HookedNode]) -> list[list[ValuePath]]:
    """Return the places of each input, after giving each place its own share where that is possible.

    A tensor in several places is one input with one gradient, unless a single compiled graph is its only user:
    that has one edge for each argument, in the order of its signature. Its node's ``consumed`` and ``shares`` are
    changed accordingly, and the new inputs come at the end of the list.
    """
    graphs = [node for node in nodes.values() if node.consumed and autograd.is_graph(node.node)]
    if not graphs:
        return inputs.paths
    paths = list(inputs.paths)
    uses = Counter(index for node in nodes.values() for _, index in node.consumed)
    for node in graphs:
        here = Counter(index for _, index in node.consumed)
        for index, number in here.items():
            places = inputs.paths[index]
            # Keywords are in the order of the call, and the graph may have them in another.
            named = sum(isinstance(p[0], str) or p[0] >= inputs.positional for p in places)
            if len(places) > 1 and number == uses[index] == len(places) and named < 2:
                node.shares[index] = range(len(paths), len(paths) + number)
                paths.extend([place] for place in places)
        node.consumed = _split(node.consumed, node.shares)
        node.later = InputGradients(inputs.edges, node.consumed, node.edges, node.shares, node.node)
    return paths


def _split(consumed: Sequence[tuple[int, int]], shares: dict[int, Sequence[int]]) -> list[tuple[int, int]]:
    """Return the edges with the index of a split input replaced by those of its places, in their order.

    Raises LookupError when there are fewer edges than places.
    """
    parts = {index: iter(each) for index, each in shares.items()}
    own = [(i, next(parts[index], -1) if index in parts else index) for i, index in consumed]
    for index, each in shares.items():
        if index in {index for _, index in consumed} and any(
            part not in {p for _, p in own} for part in each
        ):
            raise LookupError(TOO_FEW)
    return own


@define
class InputGradients:
    """Find the gradients of the call's inputs among those that a node returns.

    The graph of a jitted call has an edge for each tensor among its arguments, but it returns gradients only for
    those arguments that need one. When it runs it removes the other edges too. So where the numbers differ, the
    edges are read once more, at that moment.

    inputs: the edges of `InputEdges`.
    consumed, shares: those of the `HookedNode`.
    number: the number of edges when ``consumed`` was made.
    node: the node itself, if its edges may be removed.
    """

    inputs: dict[tuple[Any, int], int]
    consumed: Sequence[tuple[int, int]]
    number: int
    shares: dict[int, Sequence[int]] = field(factory=dict)
    node: Any = None

    def of(self, gradients: int) -> Sequence[tuple[int, int]]:
        """Return (number of the gradient, index of the input) for each gradient of an input.

        gradients: how many the node returned.

        Raises LookupError when the inputs cannot be identified.
        """
        # Not held any longer: the graph owns the hook, and cycles there leak.
        node, self.node = self.node, None
        if gradients == self.number or not self.consumed:
            return self.consumed
        now = [] if node is None else node.next_functions
        if len(now) != gradients:
            raise LookupError(TOO_FEW)
        keys = [None if following is None else (autograd.key(following), nr) for following, nr in now]
        left = [(i, self.inputs[key]) for i, key in enumerate(keys) if key in self.inputs]
        self.consumed, self.number = _split(left, self.shares), gradients
        return self.consumed
