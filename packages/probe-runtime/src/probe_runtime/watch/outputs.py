"""Find the tensors in what a module returned, whatever holds them, and name each as a record does."""

import functools
from collections.abc import Callable
from typing import Any

from probe_format.values import CONTAINERS, TABLE, UNKNOWN, Describe, Described, ValuePath, ValueWalk

Kinds = type | tuple[type, ...]


def _ignore(reason: str) -> None:
    """Ignore a reason."""


def tensors_in(value: Any, kinds: Kinds, note: Callable[[str], None] = _ignore) -> list[tuple[str, Any]]:
    """Return (path, tensor) of what a module returned: ``output.0.x``. One tensor alone counts as the first.

    kinds: the classes of tensors.
    note: takes the reason why a part could not be looked through.
    """
    walk = _TensorWalk(kinds, note)
    walk.describe(value)
    found: dict[str, Any] = {}
    for path, tensor in walk.found:
        name = ".".join(("output", *map(str, path or (0,))))
        while name in found:  # {"a.b": ..., "a": {"b": ...}}
            name += "'"
        found[name] = tensor
    return list(found.items())


class _TensorWalk(ValueWalk):
    """Walk through a value for its tensors alone."""

    __slots__ = ("_kinds", "found")

    def __init__(self, kinds: Kinds, note: Callable[[str], None]) -> None:
        super().__init__(_table(kinds), note)
        self._kinds = kinds
        self.found: list[tuple[ValuePath, Any]] = []

    def leaf(self, value: Any, path: ValuePath) -> Any:
        if not issubclass(type(value), self._kinds):
            return UNKNOWN
        self.found.append((path, value))
        return b""


def _nothing(walk: ValueWalk, value: Any, path: ValuePath) -> Described:
    return b"", None


@functools.cache
def _table(kinds: Kinds) -> dict[type, Describe]:
    """Return what describes the values of each class, where tensors are of these kinds."""
    return {kind: describe if describe in CONTAINERS else _nothing for kind, describe in TABLE.items()}
