"""Describe the arguments and the results of calls: their JSON, the form of their gradients, and the tensors in them.

A walk runs within `Leaf.aside`, which it leaves while a class of the user's is asked for its parts.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from probe_format.excerpts import unsignalled
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

from probe_runtime.describe.placement import Placement
from probe_runtime.patching.switch import muted


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
    """Describe the values of one step, each part of a record by a `Part`. Safe to use from many threads.

    To be called from outside of `Leaf.aside`.

    leaf, note: as they were given.
    shown, hidden: what describes the values of each class; where nothing is shown, only tensors are looked for.
    """

    def __init__(self, leaf: WalkedLeaf, note: Callable[[str], None]) -> None:
        """Begin a step.

        leaf: describes what belongs to the framework.
        note: takes the reason why a value could not be described.
        """
        self.leaf = leaf
        self.note = note
        own: dict[type, Describe] = dict.fromkeys(leaf.constant_types, _constant)
        self.shown = {**TABLE, **own, **dict.fromkeys(leaf.tensor_types, _tensor)}
        self.hidden: dict[type, Describe] = {
            kind: describe if describe in CONTAINERS else _met if kind in leaf.tensor_types else _nothing
            for kind, describe in self.shown.items()
        }

    def value(self, placement: Placement, value: Any) -> Described:
        """Return the JSON of one value, and its form, in which an empty container stays an empty container.

        placement: gets the tensors in the value.
        """
        walk = _Whole(self, placement)
        with walk.aside:
            return walk.describe(value)


class Part(ValueWalk):
    """Walk through one part of a record, within the leaf's `aside`. It is the `Placement` of all that it meets."""

    __slots__ = ("_leaf", "aside", "category", "found", "label", "record", "show", "tensor", "wants_file")
    names = lost = None

    def __init__(
        self, walk: Walk, record: str, category: str, wants_file: bool, show: bool, label: str | None
    ) -> None:
        """Begin with a part that is empty. The arguments are those of a `Placement`."""
        self.table, self.note = (walk.shown, walk.note) if show else (walk.hidden, _ignore)
        self.above = []
        self.record, self.category, self.wants_file = record, category, wants_file
        self.show, self.label = show, label
        self.found: list[tuple[ValuePath, Any]] = []
        self._leaf = leaf = walk.leaf
        self.tensor = leaf.tensor
        self.aside = leaf.aside()

    def arguments(self, args: Iterable[Any]) -> Described:
        """Return positional arguments as a JSON list, and the form of their gradients.

        Where the part shows nothing, the JSON means nothing.
        """
        parts, forms = self._each(enumerate(args))
        return b"[%b]" % b",".join(parts), _slots(forms)

    def keywords(self, kwargs: Mapping[str, Any]) -> Described:
        """Return keyword arguments as a JSON object, and the form of their gradients."""
        parts, forms = self._each(kwargs.items())
        named = [json_key(name) + part for name, part in zip(kwargs, parts, strict=True)]
        return b"{%b}" % b",".join(named), _slots(forms)

    def results(self, out: Any) -> tuple[bytes, Form, bool]:
        """Return what a call returned, the form of its gradients, and whether it became an object.

        A list or tuple becomes a list; a named tuple, mapping or dataclass an object, as its fields have names;
        anything else is the one element of a list.
        """
        with self.aside:
            try:
                known = self.table[type(out)]
            except unsignalled(Exception):
                known = None
            if known is not None and known not in CONTAINERS:  # nearly always: one tensor
                return b"[%b]" % known(self, out, (0,))[0], 1, False
            if not self.has_parts(out):
                return b"[%b]" % self.describe(out, (0,))[0], 1, False
            json, form = self.describe(out)
        if form is None and json not in (b"{}", b"[]"):  # its parts could not be read
            return b"[%b]" % json, 1, False
        if json[:1] == b"{":
            return json, 1 if form is None else [form], True
        return json, _slots(form or []), False

    def _each(self, pairs: Iterable[tuple[int | str, Any]]) -> tuple[list[bytes], list[Form]]:
        """Return the JSON and the forms of values, each after the key that it has in its part."""
        parts: list[bytes] = []
        forms: list[Form] = []
        table = self.table
        with self.aside:
            for key, value in pairs:
                self.left = MAX_LEAVES
                try:
                    describe = table[type(value)]
                except unsignalled(Exception):  # not only KeyError: a metaclass may give its classes no hash
                    describe = first_met
                part, form = describe(self, value, (key,))
                parts += (part,)
                forms += (form,)
        return parts, forms

    def leaf(self, value: Any, path: ValuePath) -> Any:
        """Return the JSON of a value of the framework, from outside of `aside`, as its class may be the user's."""
        return self._ask_outside(lambda value: self._leaf.leaf(self._placement, value, path), value)

    def ask(self, question: Callable[[Any], Any], value: Any) -> Any:
        """Return what the user's own code answers, with the user's modes active.

        What is no class of the user's (a tensor in a slice or as a key, a tuple of them) is asked within `aside`.
        """
        kind, tensors = type(value), self._leaf.tensor_types
        # Compared one by one: a class may have no hash, which an ABC asks for.
        if kind is tuple or kind is frozenset or any(base is t for base in kind.__mro__ for t in tensors):
            with muted():
                return super().ask(question, value)
        return self._ask_outside(question, value)

    def _ask_outside(self, question: Callable[[Any], Any], value: Any) -> Any:
        self.aside.__exit__(None, None, None)
        try:
            with muted():  # what is called meanwhile is no call of the run's
                return super().ask(question, value)
        finally:
            self.aside.__enter__()

    @property
    def _placement(self) -> Any:
        return self


class _Whole(Part):
    """Walk through a value that is a record, with a placement of its own."""

    __slots__ = ("placement",)

    def __init__(self, walk: Walk, placement: Placement) -> None:
        self.placement = placement
        super().__init__(walk, placement.record, placement.category, placement.wants_file, True, None)
        self.found = placement.found
        self.tensor = lambda part, value, path: walk.leaf.tensor(placement, value, path)

    def empty(self, form: Form) -> Form:
        return form

    @property
    def _placement(self) -> Any:
        return self.placement


def _tensor(walk: Any, value: Any, path: ValuePath) -> Described:
    walk.found += ((path, value),)
    try:
        return walk.tensor(walk, value, path), None
    except OSError:
        raise  # a full disk says nothing about the tensor
    except unsignalled(Exception) as e:
        return walk.failed(value, e), None


def _met(walk: Any, value: Any, path: ValuePath) -> Described:
    walk.found += ((path, value),)
    return b"", None


def _nothing(walk: ValueWalk, value: Any, path: ValuePath) -> Described:
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
