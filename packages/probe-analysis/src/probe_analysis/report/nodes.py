"""Arrange what a run recorded as a tree: which call ran inside which, in the order in which they began."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen
from probe_format.errors import FormatError
from probe_format.names import ModuleName, ParamsGradName, parse_name

from probe_analysis.calls import Call, Run

__all__ = ["Node", "nodes_of"]


@frozen(eq=False)
class Node:
    """Hold a line of the tree.

    call: what was recorded; None for a call that was seen and left out.
    parent: the place of the call around it among the nodes; -1 at the top.
    """

    name: str
    call: Call | None
    parent: int

    @property
    def backward(self) -> bool:
        """Return whether it belongs to the backward pass."""
        return self.call.backward if self.call is not None else ".backward" in self.name


def nodes_of(run: Run) -> list[Node]:
    """Return the nodes of a run. Raises FormatError when a file of the run is damaged."""
    parents = run.rank.construct.parents
    names = [*parents, *(name for name in run.by_name if name not in parents)]
    places = {name: i for i, name in enumerate(names)}
    above = [places.get(parents.get(name) or "", -1) for name in names]
    for i in range(len(parents), len(names)):
        above[i] = _owner(run.by_name[names[i]], parents, places)
    _cut_circles(above)
    return [Node(name, run.by_name.get(name), parent) for name, parent in zip(names, above, strict=True)]


def _owner(call: Call, parents: Mapping[str, str | None], places: dict[str, int]) -> int:
    """Return the place of the call under which gradients of parameters stand: its module's first backward."""
    if call.kind != "parameters_grad":
        return -1
    try:
        name = parse_name(call.name)
    except FormatError:
        return -1
    if not isinstance(name, ParamsGradName):
        return -1
    calls = (str(ModuleName(name.prefix, name.path, name.cls, way, 0)) for way in ("backward", "forward"))
    return next((places[call] for call in calls if call in parents), -1)


def _cut_circles(above: list[int]) -> None:
    """Put the first node of each circle, which only a damaged file has, at the top."""
    done = [False] * len(above)
    for start in range(len(above)):
        trail: set[int] = set()
        node = start
        while node >= 0 and not done[node] and node not in trail:
            trail.add(node)
            node = above[node]
        if node in trail:
            above[node] = -1
        for each in trail:
            done[each] = True
