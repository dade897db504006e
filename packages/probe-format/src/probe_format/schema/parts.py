"""Take a record apart into its tensors and its other arguments, in one walk."""

from collections.abc import Mapping
from typing import Any, Literal

from attrs import frozen

from probe_format.values import ValuePath, is_leaf

from .form import path_text
from .tensor_objects import is_tensor, tensors, walk, why_lost

Side = Literal["in", "parameter", "out"]

#: The parts of a record that went into the call. The gradients of a call's outputs go into its backward.
_IN = ("input_args", "input_kwargs", "input")
#: What a module's call found in the module itself.
_OWN = ("parameters", "buffers")
#: The keys of a number, a flag or a text.
_PLAIN = {"type", "value"}
#: Parts that are records of other runs of the same call.
_AGAIN = ("recompute", "later_passes")


@frozen(eq=False)
class Value:
    """Hold one tensor of a call.

    slot: its place in the record, as ``input_args.0``.
    side: whether it went into the call, was a parameter or a buffer of its module, or came out.
    tensor: the tensor object as it is in the file, with its statistics.
    """

    slot: str
    side: Side
    tensor: Mapping[str, Any]


@frozen(eq=False)
class Parts:
    """Hold what is in a record.

    others: (slot, value) of its arguments that are not tensors.
    """

    values: tuple[Value, ...]
    others: tuple[tuple[str, Any], ...]

    def side(self, *sides: Side) -> tuple[Value, ...]:
        """Return the tensors on these sides, in the order of the record."""
        return tuple(value for value in self.values if value.side in sides)


def side_of(path: ValuePath) -> Side:
    key = path[0] if path else ""
    return "in" if key in _IN else "parameter" if key in _OWN else "out"


def _add(values: list[Value], arguments: list[tuple[str, Any]], at: ValuePath, side: Side, item: Any) -> None:
    """Add the tensors and arguments in an item of a part that is no tensor itself. at: the place of the item."""
    # The most frequent argument is taken without a walk.
    found = [((), item)] if isinstance(item, dict) and item.keys() == _PLAIN else walk(item, is_leaf)
    for path, node in found:
        if is_tensor(node):
            values.append(Value(path_text((*at, *path)), side, node))
            continue
        if isinstance(node, dict) and node.keys() != _PLAIN:
            inner = tensors(node)  # it may carry a tensor: torch's P2POp does
            values += [Value(path_text((*at, *path, *x)), side, tensor) for x, tensor in inner]
        empty = isinstance(node, list | dict) and not node
        if side == "in" and node is not None and not empty and not why_lost(node):
            arguments.append((path_text((*at, *path)), node))


def parts_of(record: Any) -> Parts:
    """Return the tensors of a record, and its other arguments; what it returned is no argument."""
    if not isinstance(record, dict) or is_tensor(record):  # a saved value
        return Parts(tuple(Value(path_text(path), "out", node) for path, node in tensors(record)), ())
    values: list[Value] = []
    arguments: list[tuple[str, Any]] = []
    for key, part in record.items():
        if key in _AGAIN or not isinstance(part, list | dict):
            continue
        side = side_of((key,))
        if isinstance(part, dict) and is_tensor(part):  # saved under a name
            values.append(Value(key, side, part))
            continue
        items = enumerate(part) if isinstance(part, list) else part.items()
        for name, item in items:
            if is_tensor(item):
                values.append(Value(f"{key}.{name}", side, item))
            else:
                _add(values, arguments, (key, name), side, item)
    return Parts(tuple(values), tuple(arguments))
