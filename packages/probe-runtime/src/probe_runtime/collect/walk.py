"""Describe the arguments and the results of calls: their JSON, the form of their gradients, and the tensors in them.

A walk runs within `Leaf.aside`, which it leaves while a class of the user's is asked for its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from probe_format.values import (
    CONTAINERS,
    MAX_LEAVES,
    TABLE,
    Describe,
    Described,
    Form,
    ValuePath,
    ValueWalk,
    json_key,
    remembering,
)

from probe_runtime.describe.leaf import Leaf, Placement

__all__ = ["Walk"]


class Walk:
    """Describe the values of one step. Safe to use from many threads. To be called from outside of `Leaf.aside`."""

    def __init__(self, leaf: Leaf, note: Callable[[str], None]) -> None:
        """Begin a step.

        leaf: describes what belongs to the framework.
        note: takes the reason why a value could not be described.
        """
        self._leaf = leaf
        self._note = note
        own: dict[type, Describe] = dict.fromkeys(leaf.constant_types, _constant)
        self._shown = {**TABLE, **own, **dict.fromkeys(leaf.tensor_types, _tensor)}
        self._hidden = {
            kind: describe if describe in CONTAINERS else _met if kind in leaf.tensor_types else _nothing
            for kind, describe in self._shown.items()
        }

    def arguments(self, placement: Placement, args: Iterable[Any]) -> Described:
        """Return positional arguments as a JSON list, and the form of their gradients.

        placement: gets the tensors that are found. Where it shows nothing, the JSON means nothing.
        """
        with self._begin(placement) as walk:
            parts, forms = walk.each(enumerate(args))
        return b"[%b]" % b",".join(parts), _count(forms)

    def keywords(self, placement: Placement, kwargs: Mapping[str, Any]) -> Described:
        """Return keyword arguments as a JSON object, and the form of their gradients."""
        with self._begin(placement) as walk:
            parts, forms = walk.each(kwargs.items())
        return b"{%b}" % b",".join(map(bytes.__add__, map(json_key, kwargs), parts)), _count(forms)

    def results(self, placement: Placement, out: Any) -> tuple[bytes, Form, bool]:
        """Return what a call returned, the form of its gradients, and whether it became an object.

        A list or tuple becomes a list; a named tuple, mapping or dataclass an object, as its fields have names; anything
        else is the one element of a list.
        """
        with self._begin(placement) as walk:
            if not walk.has_parts(out):
                json, form = walk.describe(out, (0,))
                return b"[%b]" % json, 1, False
            json, form = walk.describe(out)
        if json[:1] == b"{":
            return json, 1 if form is None else [form], True
        return json, _count(form or []), False

    def value(self, placement: Placement, value: Any) -> Described:
        """Return one value, and its form, in which what is empty is empty."""
        with self._begin(placement) as walk:
            walk.exact = True
            return walk.describe(value)

    def _begin(self, placement: Placement) -> _PartWalk:
        if placement.show:
            return _PartWalk(self._shown, self._note, self._leaf, placement)
        return _PartWalk(self._hidden, _ignore, self._leaf, placement)


class _PartWalk(ValueWalk):
    """Walk through one part of a record, within the leaf's `aside`."""

    __slots__ = ("_aside", "_leaf", "exact", "placement", "tensor")

    def __init__(
        self, table: dict[type, Describe], note: Callable[[str], None], leaf: Leaf, placement: Placement
    ) -> None:
        self.table = table
        self.note = note
        self.above = []
        self.placement = placement
        self.tensor = leaf.tensor
        self.exact = False
        self._leaf = leaf

    def __enter__(self) -> _PartWalk:
        self._aside: AbstractContextManager[Any] = self._leaf.aside()
        self._aside.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._aside.__exit__(None, None, None)

    def each(self, pairs: Iterable[tuple[int | str, Any]]) -> tuple[list[bytes], list[Form]]:
        """Return the JSON and the forms of values, each after the key that it has in the part."""
        table, parts, forms = self.table, list[bytes](), list[Form]()
        for key, value in pairs:
            kind = type(value)
            if kind in table:
                self.left = MAX_LEAVES
                part, form = table[kind](self, value, (key,))
            else:
                part, form = self.describe(value, (key,))
            parts += (part,)
            forms += (form,)
        return parts, forms

    def leaf(self, value: Any, path: ValuePath) -> Any:
        """Return the JSON of a value of the framework, from outside of `aside`, as its class may be the user's."""
        return self.ask(lambda value: self._leaf.leaf(self.placement, value, path), value)

    def ask(self, question: Callable[[Any], Any], value: Any) -> Any:
        """Return what the user's own code answers, with the user's modes active."""
        self.__exit__()
        try:
            return question(value)
        finally:
            self.__enter__()

    def empty(self, form: Form) -> Form:
        """Return the form of a container that has no parts."""
        return form if self.exact else None


def _tensor(walk: Any, value: Any, path: ValuePath) -> Described:
    walk.placement.found.append((path, value))
    try:
        return walk.tensor(walk.placement, value, path, gradient=False), None
    except OSError:
        raise  # a full disk says nothing about the tensor
    except Exception as e:
        return walk.failed(value, e), None


def _met(walk: Any, value: Any, path: ValuePath) -> Described:
    """Note a tensor that is not shown."""
    walk.placement.found.append((path, value))
    return b"", None


def _nothing(walk: ValueWalk, value: Any, path: ValuePath) -> Described:
    """Pass over a single value that is not shown."""
    return b"", None


@remembering
def _constant(walk: ValueWalk, value: Any, path: ValuePath) -> bytes:
    found: bytes = walk.leaf(value, path)
    return found


def _count(forms: list[Form]) -> Form:
    """Return the forms, or their number where none of them has parts."""
    return len(forms) if forms.count(None) == len(forms) else forms


def _ignore(reason: str) -> None:
    """Ignore the reason: the value is not described."""
