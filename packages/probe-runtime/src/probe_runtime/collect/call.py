"""Hold what is known of a call under way, and the form that its backward record will have."""

from __future__ import annotations

from typing import Any

from attrs import define, field
from probe_format.values import ValuePath

__all__ = ["Call", "slots"]

Json = Any


@define
class Call:
    """One call under way.

    key: the record names without number and direction; faults are counted by it.
    name: the name of its forward record.
    backward: the name of its backward record.
    parent: the (forward name, backward name) of the module or node that it is made in; None at the top.
    recorded: whether anything of it is recorded.
    forward: whether its forward record is kept.
    edges: what the gradient taps remember of its inputs.
    redo: whether it is recomputed.
    keep_files: whether its tensors are written to files.
    arguments: the described positional arguments, until the form of the backward record is known.
    keywords: the described keyword arguments, until then.
    places: keyword -> its number among the arguments, after the positional ones.
    """

    key: str
    name: str
    backward: str
    parent: tuple[str, str] | None
    recorded: bool
    forward: bool
    edges: Any = None
    redo: bool = False
    keep_files: bool = False
    arguments: Json = None
    keywords: Json = None
    places: dict[str, int] = field(factory=dict)

    def place(self, path: ValuePath) -> ValuePath:
        """Return the path of a value in a keyword argument, counted after the positional ones."""
        return (self.places[str(path[0])], *path[1:])


def slots(described: Any) -> Any:
    """Return the form of a backward record: the number of its values, or nested nulls where they are nested."""
    shape = [_nulls(item) for item in described]
    return len(shape) if all(item is None for item in shape) else shape


def _nulls(described: Any) -> Any:
    if isinstance(described, list):
        return [_nulls(item) for item in described] or None
    if isinstance(described, dict) and not ("type" in described and isinstance(described["type"], str)):
        return {key: _nulls(item) for key, item in described.items()} or None
    return None
