"""Take a record apart into its tensors and its other arguments, in one walk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from attrs import frozen

__all__ = ["Parts", "Side", "Value", "parts_of"]

Side = Literal["in", "parameter", "out"]

#: The part of a record -> the side of the call that it is on. The gradients of a call's outputs go into its backward.
_SIDES: Mapping[str, Side] = {
    "input_args": "in",
    "input_kwargs": "in",
    "input": "in",
    "parameters": "parameter",
    "output": "out",
}
#: Parts that are records of other runs of the same call.
_AGAIN = ("recompute", "later_passes")


@frozen(eq=False)
class Value:
    """Hold one tensor of a call.

    slot: its place in the record, as ``input_args.0``.
    side: whether it went into the call, was a parameter of its module, or came out.
    tensor: the tensor object as it is in the file, with its statistics.
    """

    slot: str
    side: Side
    tensor: Mapping[str, Any]


@frozen(eq=False)
class Parts:
    """Hold what is in a record.

    values: its tensors, in the order of the record.
    others: (slot, value) of its arguments that are not tensors.
    """

    values: tuple[Value, ...]
    others: tuple[tuple[str, Any], ...]

    def side(self, *sides: Side) -> tuple[Value, ...]:
        """Return the tensors on these sides, in the order of the record."""
        return tuple(value for value in self.values if value.side in sides)


def parts_of(record: Any) -> Parts:
    """Return the tensors of a record, and its other arguments; what it returned is no argument.

    record: the record as it is in the file.
    """
    if not isinstance(record, dict):
        return Parts((), ())
    if _is_tensor(record):  # a saved value
        return Parts((Value("", "out", record),), ())
    values: list[Value] = []
    others: list[tuple[str, Any]] = []
    for key, part in record.items():
        if key in _AGAIN or not isinstance(part, list | dict):
            continue
        side: Side = _SIDES.get(key, "out")
        items = enumerate(part) if isinstance(part, list) else part.items()
        for name, item in items:
            if type(item) is dict and "dtype" in item and _is_tensor(item):
                values.append(Value(f"{key}.{name}", side, item))
            elif item is not None:
                _walk(f"{key}.{name}", side, item, values, others)
    return Parts(tuple(values), tuple(others))


def _walk(slot: str, side: Side, node: Any, values: list[Value], others: list[tuple[str, Any]]) -> None:
    """Add the leaves below a node that is not a tensor itself."""
    for at, leaf in _leaves(slot, node):
        if _is_tensor(leaf):
            values.append(Value(at, side, leaf))
        elif side == "in" and leaf is not None:
            others.append((at, leaf))


def _is_tensor(node: Any) -> bool:
    return isinstance(node, dict) and "dtype" in node and "shape" in node and isinstance(node.get("type"), str)


def _leaves(slot: str, node: Any) -> Iterator[tuple[str, Any]]:
    """Yield (slot, leaf) of every leaf below a node; a leaf is a tensor, an encoded value or a bare value."""
    # A stack of its own instead of recursion: a damaged file may nest deeper than Python can.
    todo = [(slot, node)]
    while todo:
        at, found = todo.pop()
        if isinstance(found, list):
            todo.extend((f"{at}.{i}", found[i]) for i in range(len(found) - 1, -1, -1))
        elif isinstance(found, dict) and not isinstance(found.get("type"), str):
            todo.extend((f"{at}.{key}", found[key]) for key in reversed(found))
        else:
            yield at, found
