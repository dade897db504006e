"""Check and parse stack.json: where in the user's code each call was made (spec/stack.md)."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from probe_format.errors import FormatError, Problem
from probe_format.excerpts import brief

from .dump import parse_object


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
    if all(_is_group(entry) for entry in document.values()):
        return []
    if all(_is_frames(entry) for entry in document.values()):
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
