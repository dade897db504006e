"""Check and parse construct.json: which call ran inside which module (spec/construct.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from probe_format.errors import FormatError, Problem
from probe_format.excerpts import brief

from .dump import parse_object

__all__ = ["MICRO_STEPS", "Construct", "check_construct", "construct_of", "parse_construct"]

MICRO_STEPS = "megatron_micro_step_number"


@frozen
class Construct:
    """Hold the tree of calls.

    parents: each node's parent, in the order of the file.
    micro_steps: Megatron's, where msprobe wrote them.
    """

    parents: Mapping[str, str | None] = field(factory=dict)
    micro_steps: Mapping[str, int] = field(factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.parents

    def ancestors(self, name: str) -> tuple[str, ...]:
        """Return the enclosing nodes, innermost first. A cycle in a damaged file ends the walk."""
        found: list[str] = []
        seen = {name}
        parent = self.parents.get(name)
        while parent is not None and parent not in seen:
            found.append(parent)
            seen.add(parent)
            parent = self.parents.get(parent)
        return tuple(found)

    def children(self) -> dict[str | None, list[str]]:
        """Return the nodes under each parent, in the order of the file; roots under None.

        A node whose parent is not in the file counts as a root, so that every node can be reached.
        """
        below: dict[str | None, list[str]] = {None: []}
        for name, parent in self.parents.items():
            below.setdefault(parent if parent in self.parents else None, []).append(name)
        return below

    def faults(self) -> list[Problem]:
        """Return the parents that do not exist, and the nodes that enclose themselves."""
        found = [
            Problem(f"construct.json {brief(name)}", f"its parent {brief(parent)} is not a node.")
            for name, parent in self.parents.items()
            if parent is not None and parent not in self.parents
        ]
        done: set[str] = set()
        for name in self.parents:
            trail: set[str] = set()
            node: str | None = name
            while node is not None and node not in done and node not in trail:
                trail.add(node)
                node = self.parents.get(node)
            if node in trail:
                found.append(Problem(f"construct.json {brief(node)}", "encloses itself."))
            done |= trail
        return found


def check_construct(document: Any) -> list[Problem]:
    """Return every fault in the form of a construct.json; `Construct.faults` checks that parents exist."""
    if not isinstance(document, dict):
        return [Problem("construct.json", "is not a JSON object.")]
    return [
        Problem(
            f"construct.json {brief(name)}", f"{brief(parent)} is not a parent; a name or null belongs here."
        )
        for name, parent in document.items()
        if not (_is_whole(parent) if name == MICRO_STEPS else _is_parent(parent))
    ]


def parse_construct(raw: bytes, where: str = "construct.json") -> Construct:
    """Read a construct.json of any msprobe or of Probe. Raises FormatError when its form is wrong."""
    document = parse_object(raw, where)
    for problem in check_construct(document):
        raise FormatError(f"{where}: {problem}")
    return construct_of(document)


def construct_of(document: dict[str, Any]) -> Construct:
    """Return the Construct in a document that `check_construct` has passed."""
    parents: dict[str, str | None] = {}
    micro_steps: dict[str, int] = {}
    for name, parent in document.items():
        if name == MICRO_STEPS:
            continue
        if isinstance(parent, list):
            parents[name], micro_steps[name] = parent[0], int(parent[1])
        else:
            parents[name] = parent
    return Construct(parents, micro_steps)


def _is_parent(x: Any) -> bool:
    if isinstance(x, list):
        return len(x) == 2 and (x[0] is None or isinstance(x[0], str)) and _is_whole(x[1])
    return x is None or isinstance(x, str)


def _is_whole(x: Any) -> bool:
    return not isinstance(x, bool) and (isinstance(x, int) or (isinstance(x, float) and x.is_integer()))
