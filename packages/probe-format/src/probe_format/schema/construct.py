"""Check and parse construct.json: which call ran inside which module (spec/construct.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import field, frozen

from probe_format.errors import FormatError, Problem
from probe_format.excerpts import brief
from probe_format.names import Direction, ModuleName, ParamsGradName, is_name, parse_name

from .dump import parse_object
from .tensor_objects import is_whole

_MICRO_STEPS = "megatron_micro_step_number"


@frozen
class Construct:
    """Hold the tree of calls.

    parents: each node's parent, in the order of the file.
    micro_steps: Megatron's, where msprobe wrote them.
    """

    parents: Mapping[str, str | None] = field(factory=dict, repr=False)
    micro_steps: Mapping[str, int] = field(factory=dict, repr=False)

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

    def with_records(self, names: Iterable[str], *ways: Direction) -> dict[str, str | None]:
        """Return the parent of each node, and of the records that are no nodes; each can be reached from the top.

        names: of the records.
        ways: gradients of parameters stand under their module's first call of the first of these directions.
        """
        found = {name: parent if parent in self.parents else None for name, parent in self.parents.items()}
        for name in names:
            if name not in found:
                parsed = parse_name(name) if is_name(name) else None
                calls: Iterable[str] = ()
                if isinstance(parsed, ParamsGradName):
                    calls = (str(ModuleName(parsed.prefix, parsed.path, parsed.cls, way, 0)) for way in ways)
                found[name] = next((call for call in calls if call in self.parents), None)
        return found | dict.fromkeys(_circles(found))

    def faults(self) -> list[Problem]:
        """Return the parents that do not exist, and the nodes that enclose themselves."""
        found = [
            Problem(f"construct.json {brief(name)}", f"its parent {brief(parent)} is not a node.")
            for name, parent in self.parents.items()
            if parent is not None and parent not in self.parents
        ]
        circles = _circles(self.parents)
        found += [Problem(f"construct.json {brief(node)}", "encloses itself.") for node in circles]
        return found


def _circles(parents: Mapping[str, str | None]) -> list[str]:
    """Return the first node of each circle, where a cut makes all reachable."""
    done: set[str] = set()
    circles: list[str] = []
    for name in parents:
        trail: set[str] = set()
        node: str | None = name
        while node is not None and node not in done and node not in trail:
            trail.add(node)
            node = parents.get(node)
        if node in trail and node is not None:
            circles.append(node)
        done |= trail
    return circles


def check_construct(document: Any) -> list[Problem]:
    """Return every fault in the form of a construct.json; `Construct.faults` checks that parents exist."""
    if not isinstance(document, dict):
        return [Problem("construct.json", "is not a JSON object.")]
    return [
        Problem(
            f"construct.json {brief(name)}", f"{brief(parent)} is not a parent; a name or null belongs here."
        )
        for name, parent in document.items()
        if not (is_whole(parent) if name == _MICRO_STEPS else _is_parent(parent))
    ]


def parse_construct(raw: bytes, where: str = "construct.json") -> Construct:
    """Read a construct.json of any msprobe or of Probe. Raises FormatError when its form is wrong."""
    document = parse_object(raw, where)
    for problem in check_construct(document):
        raise FormatError(f"{where}: {problem}")
    parents: dict[str, str | None] = {}
    micro_steps: dict[str, int] = {}
    for name, parent in document.items():
        if name == _MICRO_STEPS:
            continue
        if isinstance(parent, list):
            parents[name], micro_steps[name] = parent[0], int(parent[1])
        else:
            parents[name] = parent
    return Construct(parents, micro_steps)


def _is_parent(x: Any) -> bool:
    if isinstance(x, list):
        return len(x) == 2 and (x[0] is None or isinstance(x[0], str)) and is_whole(x[1])
    return x is None or isinstance(x, str)
