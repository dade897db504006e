"""Describe the arguments and the results of calls: the usual kinds in one loop, all others with `ValueEncoder`.

Both ways give the same JSON. The loop is for values that no code of the user's belongs to: plain tensors, numbers,
text, constants of the framework, and lists and tuples of them. It runs within `Leaf.aside`; the encoder does not, since
it may call methods of the user's own containers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from probe_format import jsonio
from probe_format.values import MAX_LEAVES, ValueEncoder, ValuePath

from probe_runtime.describe.leaf import Leaf, Placement

__all__ = ["Parts", "slots"]

Json = Any
Form = Any

_SCALARS = frozenset((type(None), bool, int, float, str, type(...)))
_BOUNDS = frozenset((type(None), int))
_MOST = 4096
_LONGEST = 200
#: The type and the value of what was described before -> its JSON.
_known: dict[tuple[Any, ...], bytes] = {}
#: A name -> its JSON, as the key of an object.
_keys: dict[str, bytes] = {}


class Parts:
    """Describe the parts of records. Safe to use from many threads.

    plain: the types of single values for which the short way may be taken.
    """

    def __init__(self, leaf: Leaf, note: Callable[[str], None]) -> None:
        """Begin a step.

        leaf: describes what belongs to the framework.
        note: takes the reason why a value could not be encoded.
        """
        self._leaf = leaf
        self._note = note
        self._tensors = leaf.tensor_types
        self.plain = _SCALARS | leaf.tensor_types | leaf.constant_types

    def are_plain(self, values: Iterable[Any]) -> bool:
        """Return whether the short way may be taken for all of these values."""
        plain = self.plain
        left = MAX_LEAVES
        for value in values:
            left -= 1
            kind = type(value)
            if kind in plain:
                continue
            if kind is tuple or kind is list:
                for item in value:
                    left -= 1
                    if type(item) not in plain and (type(item) is not slice or not _is_plain(item)):
                        return False
            elif kind is not slice or not _is_plain(value):
                return False
        return left >= 0

    # -- the short way, for plain values within `Leaf.aside` ------------------------------------------

    def mapping(self, placement: Placement, values: Mapping[str, Any]) -> tuple[Json, Form]:
        """Return plain values by name, and the form of a backward record of them (`slots`)."""
        parts, form = self.sequence(placement, values.items(), join=False)
        named: list[bytes] = []
        for name, part in zip(values, parts, strict=True):
            if type(part) is not bytes:
                return dict(zip(values, parts, strict=True)), form
            named += (_key(name) + part,)
        return b"{%b}" % b",".join(named), form

    def sequence(
        self,
        placement: Placement,
        pairs: Iterable[tuple[int | str, Any]],
        above: ValuePath = (),
        *,
        join: bool = True,
    ) -> tuple[Json, Form]:
        """Return plain values in a list, and the form of a backward record of them (`slots`).

        pairs: the values, each after the last key of its path.
        above: the path of the list.
        join: whether finished JSON is joined, where nothing in the list comes later.
        """
        # Lists grow by `+=` and known values are looked up, so that only tensors cost function calls.
        tensors, tensor, found, show = self._tensors, self._leaf.tensor, placement.found, placement.show
        parts: list[Json] = []
        forms: list[Form] = []
        nested = False
        count = 0
        finished = join
        for key, value in pairs:
            kind = type(value)
            form = part = None
            if kind in tensors:
                path = (*above, key)
                found += ((path, value),)
                if show:
                    try:
                        part = tensor(placement, value, path, gradient=False)
                    except OSError:
                        raise  # as the encoder does
                    except Exception as e:
                        part = self.encoder(placement).failed(value, e)
            elif kind is tuple or kind is list:
                part, number = self.sequence(placement, enumerate(value), (*above, key))
                form = ([None] * number or None) if type(number) is int else number
                nested = nested or form is not None
            elif show:
                identity: tuple[Any, ...]
                if kind is float:  # 0.0 == -0.0
                    identity = kind, f"{value!r}"
                elif kind is slice:
                    identity = kind, value.start, value.stop, value.step
                else:
                    identity = kind, value
                try:
                    part = _known[identity]
                except (KeyError, TypeError):
                    part = self._encoded(placement, value, (*above, key), identity)
            finished = finished and type(part) is bytes
            parts += (part,)
            forms += (form,)
            count += 1
        described: Json = parts
        if finished:
            described = b"[%b]" % (parts[0] if count == 1 else b",".join(parts))
        return described, forms if nested else count

    def _encoded(self, placement: Placement, value: Any, path: ValuePath, identity: tuple[Any, ...]) -> Json:
        """Return a value as the encoder gives it, and remember the JSON of what will be the same the next time."""
        encoded = self.encoder(placement).describe(value, path)
        if encoded is not None and (type(encoded) is not dict or "unsupported" in encoded):
            return encoded
        text = jsonio.dumps(encoded)
        if len(text) < _LONGEST:
            if len(_known) > _MOST:
                _known.clear()
            _known[identity] = text
        return text

    # -- the general way ------------------------------------------------------------------------------

    def encoder(self, placement: Placement) -> ValueEncoder:
        """Return what encodes any value for this part of a record."""
        return ValueEncoder(partial(self._leaf.leaf, placement), self._note if placement.show else _ignore)


def _is_plain(value: slice) -> bool:
    return type(value.start) in _BOUNDS and type(value.stop) in _BOUNDS and type(value.step) in _BOUNDS


def _key(name: str) -> bytes:
    try:
        return _keys[name]
    except KeyError:
        if len(_keys) > _MOST:
            _keys.clear()
        text = _keys[name] = jsonio.dumps(name) + b":"
        return text


def _ignore(reason: str) -> None:
    """Ignore the reason: the value is not described."""


def slots(described: Iterable[Json]) -> Form:
    """Return the form of a backward record: the number of its values, or nested nulls where they are nested."""
    shape = [_nulls(item) for item in described]
    return len(shape) if all(item is None for item in shape) else shape


def _nulls(described: Json) -> Form:
    if isinstance(described, list):
        return [_nulls(item) for item in described] or None
    if isinstance(described, dict) and not ("type" in described and isinstance(described["type"], str)):
        return {key: _nulls(item) for key, item in described.items()} or None
    return None
