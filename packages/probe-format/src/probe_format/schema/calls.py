"""Check and parse what goes with the records of calls.

construct.json: which call ran inside which module (spec/construct.md); stack.json: where in the user's code each was
made (spec/stack.md).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import field, frozen

from probe_format.errors import FormatError, Problem
from probe_format.excerpts import brief
from probe_format.names import Direction, ModuleName, ParamsGradName, parsed

from .dump import parse_object
from .tensor_objects import is_whole

_MICRO_STEPS = "megatron_micro_step_number"


@frozen
class Construct:
    """Hold the tree of calls.

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

        ways: gradients of parameters stand under their module's first call of the first of these directions.
        """
        found = {name: parent if parent in self.parents else None for name, parent in self.parents.items()}
        for name in names:
            if name not in found:
                of = parsed(name)
                calls: Iterable[str] = ()
                if isinstance(of, ParamsGradName):
                    calls = (str(ModuleName(of.prefix, of.path, of.cls, way, 0)) for way in ways)
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


@frozen
class Stack:
    """Hold the frames of each call, innermost first.

    groups: (names, frames) pairs, in first-seen order.
    """

    groups: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = field(default=(), repr=False)
    _group_of: dict[str, int] = field(init=False, repr=False, eq=False)

    @_group_of.default
    def _index(self) -> dict[str, int]:
        return {name: i for i, (names, _) in enumerate(self.groups) for name in names}

    def __contains__(self, name: str) -> bool:
        return name in self._group_of

    def of(self, name: str) -> tuple[str, ...]:
        """Return the frames of one call, innermost first; empty when none were recorded."""
        group = self._group_of.get(name)
        return () if group is None else self.groups[group][1]


def check_stack(document: Any) -> list[Problem]:
    """Return every fault in a stack.json, in the grouped layout or the flat one of msprobe 1."""
    if not isinstance(document, dict):
        return [Problem("stack.json", "is not a JSON object.")]
    if all(map(_is_group, document.values())) or all(map(_is_frames, document.values())):
        return []
    bad = next((k for k, v in document.items() if not _is_group(v) and not _is_frames(v)), None)
    if bad is None:
        return [Problem("stack.json", "mixes the grouped layout with the flat one.")]
    return [Problem(f"stack.json {brief(bad)}", "is neither [[names], [frames]] nor [frames].")]


def parse_stack(raw: bytes, where: str = "stack.json") -> Stack:
    """Read a stack.json of either layout. Raises FormatError when its form is wrong."""
    document = parse_object(raw, where)
    for problem in check_stack(document):
        raise FormatError(f"{where}: {problem}")
    if document and all(_is_group(entry) for entry in document.values()):
        return Stack(tuple((tuple(names), tuple(frames)) for names, frames in document.values()))
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, frames in document.items():
        groups.setdefault(tuple(frames), []).append(name)
    return Stack(tuple((tuple(names), frames) for frames, names in groups.items()))


def _is_frames(entry: Any) -> bool:
    return isinstance(entry, list) and all(isinstance(frame, str) for frame in entry)


def _is_group(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(_is_frames(part) for part in entry)
