"""Find references to replacements that user code took and still holds, and put the originals in their place."""

import contextlib
import functools
import gc
from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import chain, repeat
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any

from .places import Default, Function, Item, Member, Place, Stood

_DEPTH = 4


class Own(dict[Any, Any]):
    """A table of Probe's that holds replacements, and is not searched for them."""


class OwnPair(tuple[Any, Any]):
    """A pair of functions in such a table: (old, new)."""

    __slots__ = ()


class OwnTuple(tuple[Any, ...]):
    """A tuple of Probe's that holds replacements, and is not searched for them."""

    __slots__ = ()


_LEFT_ALONE = (Own, OwnPair, OwnTuple, Place, Stood, Default, Item, Member, FrameType)


def give_back(pairs: Iterable[tuple[Function, Function]]) -> None:
    """Put each original wherever its replacement is held.

    pairs: (replacement, original).

    Reaches attributes of objects and classes, dicts, lists, sets, closures, defaults, partials, and tuples and bound
    methods inside one of these; not local variables of functions that run, or objects of extensions.
    Looks through every object of the process, once for each depth of nesting.
    """
    table = _Swaps({id(old): OwnPair((old, new)) for old, new in pairs})
    for _ in range(_DEPTH):
        table = _exchange(table)
        if not table:
            return


class _Swaps(Own):
    """id(old) -> (old, new)."""


def _exchange(table: _Swaps) -> _Swaps:
    """Change the holders of the old functions; return those that cannot be changed, with what replaces them."""
    boxes = _Swaps()
    namespaces: list[dict[Any, Any]] = []
    olds = [old for old, _ in table.values()]
    holders = gc.get_referrers(*olds)
    for holder in holders:
        kind = type(holder)  # not isinstance, no methods of the holder: no code of the user's may run here
        if holder is olds or issubclass(kind, _LEFT_ALONE):
            continue
        box = _rebuilt(holder, table)
        if box is not None:
            boxes[id(holder)] = OwnPair((holder, box))
        elif kind is dict and "__module__" in holder and "__doc__" in holder:
            namespaces.append(holder)
        else:
            _change(holder, table)
    _change_classes(namespaces, table)
    return boxes


def _new(value: Any, table: _Swaps) -> Any:
    found = table.get(id(value))
    return value if found is None else found[1]


def _rebuilt(holder: Any, table: _Swaps) -> Any:
    """Return what replaces a holder that cannot be changed; None for one that can."""
    kind = type(holder)
    if kind is tuple or kind is frozenset:
        return kind(_new(item, table) for item in holder)
    if issubclass(kind, tuple):
        return tuple.__new__(kind, [_new(item, table) for item in tuple.__iter__(holder)])
    if kind is staticmethod or kind is classmethod:
        return kind(_new(holder.__func__, table))
    if kind is MethodType:
        return _new(holder.__func__, table).__get__(holder.__self__)
    return None


def _change(holder: Any, table: _Swaps) -> None:
    try:
        _put(holder, table)
    except (AttributeError, TypeError, ValueError):  # the holder is read-only
        return


def _put(holder: Any, table: _Swaps) -> None:
    kind = type(holder)
    if issubclass(kind, dict):
        items = dict.copy(holder)  # at once: a list of pairs lets the garbage collector in
        for key, value in items.items():
            if id(value) in table:
                dict.__setitem__(holder, key, _new(value, table))
        if not table.keys().isdisjoint(map(id, items)):
            _put_keys(holder, items, table)
    elif issubclass(kind, (list, deque)):
        base: Any = list if issubclass(kind, list) else deque
        for i, value in enumerate(list(base.__iter__(holder))):
            if id(value) in table:
                base.__setitem__(holder, i, _new(value, table))
    elif issubclass(kind, set):
        for value in [v for v in set.copy(holder) if id(v) in table]:
            set.discard(holder, value)
            set.add(holder, _new(value, table))
    elif kind is CellType:
        holder.cell_contents = _new(holder.cell_contents, table)
    elif issubclass(kind, functools.partial):
        reduced: Any = functools.partial.__reduce__(holder)
        function, args, kwargs, rest = reduced[2]
        state = (_new(function, table), _new(args, table), kwargs, rest)
        functools.partial.__setstate__(holder, state)  # type: ignore[attr-defined]
    elif kind is FunctionType:
        if id(holder.__defaults__) in table:
            holder.__defaults__ = _new(holder.__defaults__, table)
    elif not issubclass(kind, type):  # the namespace of a class is a holder of its own
        _put_attributes(holder, table)


def _put_keys(holder: Any, items: dict[Any, Any], table: _Swaps) -> None:
    base: Any = OrderedDict if issubclass(type(holder), OrderedDict) else dict
    keys = [key for key in list(base.__iter__(holder)) if key in items]
    values = [_new(items[key], table) for key in keys]
    refill = map(base.__setitem__, repeat(holder), [_new(key, table) for key in keys], values)
    deque(chain(map(base.clear, (holder,)), refill), 0)  # in C: no other thread finds the dict empty


def _put_attributes(holder: Any, table: _Swaps) -> None:
    """Change attributes in slots, and those of an instance whose ``__dict__`` was not made yet."""
    with contextlib.suppress(AttributeError):
        attributes = object.__getattribute__(holder, "__dict__")
        if type(attributes) is dict:
            _put(attributes, table)
    for cls in type(holder).__mro__:
        for member in [m for m in vars(cls).values() if type(m) is _SLOT]:
            with contextlib.suppress(AttributeError):  # the slot is empty or read-only
                value = member.__get__(holder)
                if id(value) in table:
                    member.__set__(holder, _new(value, table))


def _change_classes(namespaces: list[dict[Any, Any]], table: _Swaps) -> None:
    """Change attributes of classes through the class, which keeps its caches right."""
    if not namespaces:
        return
    classes = [o for o in gc.get_referrers(*namespaces) if issubclass(type(o), type)]
    for namespace in namespaces:
        owner = next((c for c in classes if c.__dict__.keys() == namespace.keys()), None)
        for key, value in namespace.copy().items():
            if id(value) in table:
                if owner is None:
                    namespace[key] = _new(value, table)
                elif owner.__dict__.get(key) is value:
                    type.__setattr__(owner, key, _new(value, table))


class _Slotted:
    __slots__ = ("one",)


_SLOT = type(vars(_Slotted)["one"])
