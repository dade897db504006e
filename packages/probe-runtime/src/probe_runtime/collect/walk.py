"""Describe the arguments and the results of calls: their JSON, the form of their gradients, and the tensors in them.

A walk runs within `Leaf.aside`, which it leaves while a class of the user's is asked for its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from probe_format.values import (
    CONTAINERS,
    MAX_LEAVES,
    TABLE,
    Describe,
    Described,
    Form,
    ValuePath,
    ValueWalk,
    first_met,
    json_key,
    remembering,
)

from probe_runtime.describe.leaf import Placement

__all__ = ["Walk", "WalkedLeaf"]


class WalkedLeaf(Protocol):
    """What a walk needs of a `Leaf`."""

    @property
    def tensor_types(self) -> frozenset[type]: ...
    @property
    def constant_types(self) -> frozenset[type]: ...
    def aside(self) -> AbstractContextManager[Any]: ...
    def leaf(self, placement: Any, value: Any, path: ValuePath) -> Any: ...
    @property
    def tensor(self) -> Callable[..., bytes]: ...


class Walk:
    """Describe the values of one step. Safe to use from many threads. To be called from outside of `Leaf.aside`."""

    def __init__(self, leaf: WalkedLeaf, note: Callable[[str], None]) -> None:
        """Begin a step.

        leaf: describes what belongs to the framework.
        note: takes the reason why a value could not be described.
        """
        self._leaf = leaf
        self._note = note
        own: dict[type, Describe] = dict.fromkeys(leaf.constant_types, _constant)
        self._shown = {**TABLE, **own, **dict.fromkeys(leaf.tensor_types, _tensor)}
        self._hidden: dict[type, Describe] = {
            kind: describe if describe in CONTAINERS else _met if kind in leaf.tensor_types else _nothing
            for kind, describe in self._shown.items()
        }

    def arguments(self, placement: Placement, args: Iterable[Any]) -> Described:
        """Return positional arguments as a JSON list, and the form of their gradients.

        placement: gets the tensors that are found. Where it shows nothing, the JSON means nothing.
        """
        parts, forms = self._each(placement, enumerate(args))
        return b"[%b]" % b",".join(parts), _slots(forms)

    def keywords(self, placement: Placement, kwargs: Mapping[str, Any]) -> Described:
        """Return keyword arguments as a JSON object, and the form of their gradients."""
        parts, forms = self._each(placement, kwargs.items())
        named = [json_key(name) + part for name, part in zip(kwargs, parts, strict=True)]
        return b"{%b}" % b",".join(named), _slots(forms)

    def results(self, placement: Placement, out: Any) -> tuple[bytes, Form, bool]:
        """Return what a call returned, the form of its gradients, and whether it became an object.

        A list or tuple becomes a list; a named tuple, mapping or dataclass an object, as its fields have names;
        anything else is the one element of a list.
        """
        walk = _PartWalk(self, placement)
        with walk.aside:
            known = walk.table.get(type(out))
            if known is not None and known not in CONTAINERS:  # nearly always: one tensor
                return b"[%b]" % known(walk, out, (0,))[0], 1, False
            if not walk.has_parts(out):
                return b"[%b]" % walk.describe(out, (0,))[0], 1, False
            json, form = walk.describe(out)
        if form is None and json not in (b"{}", b"[]"):  # its parts could not be read
            return b"[%b]" % json, 1, False
        if json[:1] == b"{":
            return json, 1 if form is None else [form], True
        return json, _slots(form or []), False

    def value(self, placement: Placement, value: Any) -> Described:
        """Return one value, and its form, in which what is empty is empty."""
        walk = _WholeWalk(self, placement)
        with walk.aside:
            return walk.describe(value)

    def _each(
        self, placement: Placement, pairs: Iterable[tuple[int | str, Any]]
    ) -> tuple[list[bytes], list[Form]]:
        """Return the JSON and the forms of values, each after the key that it has in its part."""
        parts: list[bytes] = []
        forms: list[Form] = []
        walk = _PartWalk(self, placement)
        table = walk.table
        with walk.aside:
            for key, value in pairs:
                walk.left = MAX_LEAVES
                try:
                    describe = table[type(value)]
                except KeyError:
                    describe = first_met
                part, form = describe(walk, value, (key,))
                parts += (part,)
                forms += (form,)
        return parts, forms


class _PartWalk(ValueWalk):
    """Walk through one part of a record, within the leaf's `aside`."""

    __slots__ = ("_leaf", "aside", "found", "placement", "tensor")

    def __init__(self, walk: Walk, placement: Placement) -> None:
        leaf = walk._leaf
        self.table, self.note = (walk._shown, walk._note) if placement.show else (walk._hidden, _ignore)
        self.above = []
        self.placement = placement
        self.found = placement.found
        self.tensor = leaf.tensor
        self.aside = leaf.aside()
        self._leaf = leaf

    def leaf(self, value: Any, path: ValuePath) -> Any:
        """Return the JSON of a value of the framework, from outside of `aside`, as its class may be the user's."""
        self.aside.__exit__(None, None, None)
        try:
            return self._leaf.leaf(self.placement, value, path)
        finally:
            self.aside.__enter__()

    def ask(self, question: Callable[[Any], Any], value: Any) -> Any:
        """Return what the user's own code answers, with the user's modes active."""
        self.aside.__exit__(None, None, None)
        try:
            return question(value)
        finally:
            self.aside.__enter__()


class _WholeWalk(_PartWalk):
    """Walk through a value that is a record."""

    __slots__ = ()

    def empty(self, form: Form) -> Form:
        """Return the form of a container that has no parts."""
        return form


def _tensor(walk: Any, value: Any, path: ValuePath) -> Described:
    walk.found += ((path, value),)
    try:
        return walk.tensor(walk.placement, value, path, gradient=False), None
    except OSError:
        raise  # a full disk says nothing about the tensor
    except Exception as e:
        return walk.failed(value, e), None


def _met(walk: Any, value: Any, path: ValuePath) -> Described:
    """Note a tensor that is not shown."""
    walk.found += ((path, value),)
    return b"", None


def _nothing(walk: ValueWalk, value: Any, path: ValuePath) -> Described:
    """Pass over a single value that is not shown."""
    return b"", None


@remembering
def _constant(walk: ValueWalk, value: Any, path: ValuePath) -> bytes:
    found: bytes = walk.leaf(value, path)
    return found


def _slots(forms: list[Form]) -> Form:
    """Return the forms, or their number where none of them has parts."""
    count = len(forms)
    return count if forms.count(None) == count else forms


def _ignore(reason: str) -> None:
    """Ignore the reason: the value is not described."""
