"""Record where the gradients of a call's inputs go, by the autograd graph as it is when the call is entered."""

from collections.abc import Sequence
from typing import Any

from attrs import define, field
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
            except Exception:  # its computation failed, and each look at it raises that again
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
