"""Find references to replacements that user code took and still holds, and put the originals in their place."""

import contextlib
import functools
import gc
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import chain, repeat
from types import CellType, FrameType, FunctionType, MethodType, WrapperDescriptorType
from typing import Any

from .places import Default, Function, Item, Known, Member, Place, Stood, own_holders

_DEPTH = 4


class Own(dict[Any, Any]):
    """A table of Probe's that holds replacements, and is not searched for them."""


class OwnPair(tuple[Any, Any]):
    """A pair of functions in such a table: (old, new)."""

    __slots__ = ()


class OwnTuple(tuple[Any, ...]):
    """A tuple of Probe's that holds replacements, and is not searched for them."""

    __slots__ = ()


_LEFT_ALONE = (Own, OwnPair, OwnTuple, Known, Place, Stood, Default, Item, Member, FrameType)


def give_back(pairs: Iterable[tuple[Function, Function]]) -> None:
    """Put each original wherever its replacement is held.

    pairs: (replacement, original).

    Reaches attributes of objects and classes, dicts, lists, sets, closures, defaults, partials, and tuples and bound
    methods inside one of these; not local variables of functions that run, or objects of extensions.
    Looks through every object of the process, once for each depth of nesting.
    """
    table, own = _Swaps({id(old): OwnPair((old, new)) for old, new in pairs}), own_holders()
    for _ in range(_DEPTH):
        table = _exchange(table, own)
        if not table:
            return


class _Swaps(Own):
    """id(old) -> (old, new)."""


def _exchange(table: _Swaps, own: set[int]) -> _Swaps:
    """Change the holders of the old functions; return those that cannot be changed, with what replaces them.

    own: the ids of holders that are left alone.
    """
    boxes = _Swaps()
    namespaces: list[dict[Any, Any]] = []
    olds = [old for old, _ in table.values()]
    holders = gc.get_referrers(*olds)
    for holder in holders:
        kind = type(holder)  # not isinstance, no methods of the holder: no code of the user's may run here
        if holder is olds or issubclass(kind, _LEFT_ALONE) or id(holder) in own:
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
        items = [_new(item, table) for item in holder]
        return kind(items) if kind is tuple or all(map(_is_settled, items)) else None
    if issubclass(kind, tuple):
        items = [_new(item, table) for item in tuple.__iter__(holder)]
        with contextlib.suppress(TypeError):  # one of C's own, as time.struct_time
            return _with_attributes(tuple.__new__(kind, items), holder)
    if kind is staticmethod or kind is classmethod:
        return _with_attributes(kind(_new(holder.__func__, table)), holder)
    if kind is MethodType:
        return _new(holder.__func__, table).__get__(holder.__self__)
    return None


def _with_attributes(made: Any, holder: Any) -> Any:
    """Return what replaces a holder, with its attributes."""
    with contextlib.suppress(AttributeError):  # of a class that has slots
        object.__getattribute__(made, "__dict__").update(object.__getattribute__(holder, "__dict__"))
    return made


def _change(holder: Any, table: _Swaps) -> None:
    kind = type(holder)
    put = next((put for base, put in _PUTS if issubclass(kind, base)), _put_attributes)
    # It may be read-only, or a key of the user's have no hash any more.
    with contextlib.suppress(Exception):
        put(holder, table)


def _put_values(holder: Any, table: _Swaps) -> None:
    # In one call: to make a list of pairs lets the garbage collector in. A dict with an __iter__ of its own is not
    # copied, as copying asks its methods for every item.
    items = dict.copy(holder) if type(holder).__iter__ is dict.__iter__ else holder
    keys, values = list(dict.keys(items)), list(dict.values(items))
    for key, value in zip(keys, values, strict=False):
        if id(value) in table:
            # A key whose hash has changed since is found no more; put again, it would be a second one.
            with contextlib.suppress(Exception):
                if dict.get(holder, key) is value:
                    dict.__setitem__(holder, key, _new(value, table))
    if not table.keys().isdisjoint(map(id, keys)):
        _put_keys(holder, keys, table)


def _put_keys(holder: Any, keys: list[Any], table: _Swaps) -> None:
    is_ordered = issubclass(type(holder), OrderedDict)
    base: Any = OrderedDict if is_ordered else dict
    filled: dict[Any, Any] = {}
    if all(_is_settled(_new(key, table)) for key in keys):
        items = dict(zip(keys, dict.values(holder), strict=True))
        for key in list(base.__iter__(holder)):
            filled[_new(key, table)] = items.get(key)
        refill = map(base.__setitem__, repeat(holder), filled, filled.values())
    elif type(holder).__iter__ is dict.__iter__:
        # What a dict takes from a dict keeps the hash that it has there: no key of the user's is asked for its own.
        items = dict.copy(holder)
        for i, key in enumerate(keys := list(items)):
            if (new := _new(key, table)) is not key and _is_settled(new):
                before = dict.copy(items)
                deque(map(dict.popitem, repeat(before, len(items) - i)), 0)
                filled.update(before)
                filled[new] = items[key]
        filled.update(items)
        refill = map(dict.update, (holder,), (filled,))
    else:
        return
    if list(map(id, dict.keys(holder))) == list(map(id, keys)):  # no other thread has changed it meanwhile
        deque(chain(map(base.clear, (holder,)), refill), 0)  # in C: no other thread finds the dict empty


def _is_settled(key: Any) -> bool:
    """Return whether the hash of a key is Python's own, so that it is what it was, and no code of the user's runs."""
    kind = type(key)
    if kind is tuple or kind is frozenset:
        return all(map(_is_settled, key))
    own: Any = kind.__hash__
    return type(own) is WrapperDescriptorType or own is Enum.__hash__


def _put_elements(holder: Any, table: _Swaps) -> None:
    base: Any = list if issubclass(type(holder), list) else deque
    for i, value in enumerate(list(base.__iter__(holder))):
        if id(value) in table:
            base.__setitem__(holder, i, _new(value, table))


def _put_members(holder: Any, table: _Swaps) -> None:
    for value in [v for v in set.copy(holder) if id(v) in table]:
        set.discard(holder, value)
        set.add(holder, _new(value, table))


def _put_content(holder: CellType, table: _Swaps) -> None:
    holder.cell_contents = _new(holder.cell_contents, table)


def _put_bound(holder: Any, table: _Swaps) -> None:
    reduced: Any = functools.partial.__reduce__(holder)
    function, args, kwargs, rest = reduced[2]
    state = (_new(function, table), _new(args, table), kwargs, rest)
    functools.partial.__setstate__(holder, state)  # type: ignore[attr-defined]


def _put_defaults(holder: FunctionType, table: _Swaps) -> None:
    if id(holder.__defaults__) in table:
        holder.__defaults__ = _new(holder.__defaults__, table)


def _put_attributes(holder: Any, table: _Swaps) -> None:
    """Change attributes in slots, and those of an instance whose ``__dict__`` was not made yet."""
    with contextlib.suppress(AttributeError):
        attributes = object.__getattribute__(holder, "__dict__")
        if type(attributes) is dict:
            _put_values(attributes, table)
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
#: How the holders of each type are changed; any other holds in its attributes.
_PUTS: tuple[tuple[type, Callable[[Any, _Swaps], None]], ...] = (
    (dict, _put_values),
    (list, _put_elements),
    (deque, _put_elements),
    (set, _put_members),
    (CellType, _put_content),
    (functools.partial, _put_bound),
    (FunctionType, _put_defaults),
    (type, lambda holder, table: None),  # its namespace is a holder of its own
)
