"""Check and parse construct.json and stack.json, which go with the records of calls.

construct.json says which call ran inside which module (spec/construct.md), stack.json where in the user's code each
call was made (spec/stack.md).
"""

from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import Annotated, Any

from attrs import field, frozen

from probe_format.errors import FormatError, Problem
from probe_format.excerpts import brief
from probe_format.names import Direction, ModuleName, ParamsGradName, parsed

from .dump import parse_object
from .form import misfits, schema_of

_MICRO_STEPS = "megatron_micro_step_number"


@frozen
class Construct:
    """Hold the tree of calls.

    parents: node -> its parent, None at the top.
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
        """Return the parent of each node and record; cycles are cut, so that each can be reached from the top.

        ways: a module's parameter gradients stand under its first call in the first of these directions that has one.
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
    """Return one node of each circle: if these have no parent, all nodes can be reached from the top."""
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


Parent = str | None
CONSTRUCT = {
    "type": "object",
    "properties": {_MICRO_STEPS: schema_of(int)},
    # msprobe writes [parent, micro step] under Megatron
    "additionalProperties": schema_of(Parent | tuple[Parent, int])
    | {"description": "a parent, which is a name or null"},
}


def check_construct(document: Any) -> Iterator[Problem]:
    """Yield every fault in the form of a construct.json; `Construct.faults` checks that parents exist."""
    return misfits(document, CONSTRUCT, ("construct.json",))


def parse_construct(raw: bytes, where: str = "construct.json") -> Construct:
    """Read a construct.json of any msprobe or of Probe. Raises FormatError when its form is wrong."""
    document = parse_object(raw, where)
    if {*map(type, document.values())} <= {str, NoneType} and _MICRO_STEPS not in document:  # as nearly all
        return Construct(document)
    for problem in check_construct(document):
        raise FormatError(f"{where}: {problem}")
    parents: dict[str, str | None] = {}
    micro_steps: dict[str, int] = {}
    document.pop(_MICRO_STEPS, None)
    for name, parent in document.items():
        if isinstance(parent, list):
            parents[name], micro_steps[name] = parent[0], int(parent[1])
        else:
            parents[name] = parent
    return Construct(parents, micro_steps)


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


_Group = Annotated[tuple[list[str], list[str]], {"description": "[[names], [frames]], nor are all [frames]"}]
#: Calls grouped by identical stack, as Probe and msprobe 8 and 26 write them.
_GROUPED = schema_of(Mapping[str, _Group])
#: A stack for each call, as msprobe 1 writes them.
_FLAT = schema_of(Mapping[str, list[str]])
STACK = {"anyOf": [_GROUPED, _FLAT]}


def check_stack(document: Any) -> Iterator[Problem]:
    """Yield every fault in the form of a stack.json."""
    flat = not any(misfits(document, _FLAT))
    return misfits(document, _FLAT if flat else _GROUPED, ("stack.json",))


def parse_stack(raw: bytes, where: str = "stack.json") -> Stack:
    """Read a stack.json of either layout. Raises FormatError when its form is wrong."""
    document = parse_object(raw, where)
    for problem in check_stack(document):
        raise FormatError(f"{where}: {problem}")
    if not any(misfits(document, _GROUPED)):
        return Stack(tuple((tuple(names), tuple(frames)) for names, frames in document.values()))
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, frames in document.items():
        groups.setdefault(tuple(frames), []).append(name)
    return Stack(tuple((tuple(names), frames) for frames, names in groups.items()))
