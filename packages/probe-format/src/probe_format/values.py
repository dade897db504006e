"""Encode the nested values of a call (arguments, results) as finished JSON (spec/values.md).

One table gives for each class the function that encodes its values: `TABLE` has Python's own classes, a caller adds
those of a framework, and any other class is entered when it is met for the first time. Beside the JSON, the function
returns the form of the value's gradients: None for a single value, a list or dict of forms for one with parts.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import decimal
import enum
import functools
import itertools
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .excerpts import asked, error_text, unsignalled
from .jsonio import MINUS_INFINITY, dumps, encode, finite, inert, meant

ValuePath = tuple[int | str, ...]
Form = Any
#: The finished JSON of a value, and its form.
Described = tuple[bytes, Form]
Describe = Callable[["ValueWalk", Any, ValuePath], Described]

#: The result of `ValueWalk.leaf` for a value that does not belong to its framework.
UNKNOWN: Any = object()
MAX_DEPTH = 24
MAX_LEAVES = 20_000
_TEXT = 4096
# Python refuses to convert longer integers to text and back.
_MOST = 10**4000
_LEAST = -_MOST
_FEW = 10**9
_TOO_LONG = "a whole number of more than 4000 digits"
#: How many values, keys and classes are remembered, and up to which length of their JSON.
_KNOWN, _SHORT = 4096, 200


def unsupported(value: object, why: str) -> bytes:
    """Return the placeholder for a value that has no encoding: its type, and the reason."""
    return dumps({"type": _type_name(type(value)), "value": None, "unsupported": why})


def is_leaf(encoded: Any) -> bool:
    """Return whether encoded JSON is a single value, not a container (whose ``type`` is an encoded value)."""
    return isinstance(encoded, dict) and isinstance(encoded.get("type"), str)


def plain(encoded: Any) -> Any:
    """Return the value that encoded JSON holds, without its type; JSON that holds no value is returned as it is."""
    if not (isinstance(encoded, dict) and "value" in encoded):
        return encoded
    value = encoded["value"]
    return meant(value) if isinstance(value, str) else value


def _type_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


class ValueWalk:
    """Encode values, one argument after the other.

    above: the ids of the containers around the value at hand.
    left: how many more values this argument may have.
    """

    __slots__ = ("above", "left", "note", "table")

    def __init__(self, table: dict[type, Describe], note: Callable[[str], None]) -> None:
        """Begin.

        table: class -> the function that encodes its values; classes that are met are added.
        note: takes the reason why a value could not be described.
        """
        self.table = table
        self.note = note
        self.above: list[int] = []
        self.left = MAX_LEAVES

    def leaf(self, value: Any, path: ValuePath) -> Any:
        """Return the JSON of a framework's value, as a tensor; `UNKNOWN` for any other. Its class alone decides."""
        return UNKNOWN

    def ask(self, question: Callable[[Any], Any], value: Any) -> Any:
        """Return the answer to a question that may run the user's own code. Raises as `asked` does."""
        return asked(question, value)

    def empty(self, form: Form) -> Form:
        """Return the form of a container that has no parts."""
        return None

    def describe(self, value: Any, path: ValuePath = ()) -> Described:
        self.left = MAX_LEAVES
        return (self.known(type(value)) or first_met)(self, value, path)

    def known(self, kind: type) -> Describe | None:
        """Return the function that encodes values of this class; None where the class is new, or has no hash."""
        try:
            return self.table.get(kind)
        except unsignalled(Exception):
            return None

    def has_parts(self, value: Any) -> bool:
        """Return whether a value is described by its parts."""
        try:
            describe = self.known(type(value)) or self.ask(_kind, value)
        except unsignalled(Exception):
            return False
        return describe in CONTAINERS

    def failed(self, value: Any, error: Exception) -> bytes:
        """Return the placeholder for a value that raised this error when it was looked at."""
        return self.give_up(value, f"looking at it raised {error_text(error)[:200]}")

    def give_up(self, value: Any, why: str) -> bytes:
        self.note(f"{_type_name(type(value))}: {why}")
        return unsupported(value, why)


# -- single values ----------------------------------------------------------------------------------------


def remembering(describe: Callable[[ValueWalk, Any, ValuePath], bytes | None]) -> Describe:
    """Return a function that encodes immutable values, and remembers the JSON of each.

    describe: returns the JSON, the same for all equal values; None for an integer that is too long.
    """
    known: dict[Any, Described] = {}

    def described(walk: ValueWalk, value: Any, path: ValuePath) -> Described:
        try:
            return known[value]
        except (KeyError, TypeError):  # or it has no hash, as a symbolic size
            pass
        try:
            json = describe(walk, value, path)
        except unsignalled(Exception) as e:
            return walk.failed(value, e), None
        if json is None:
            return walk.give_up(value, _TOO_LONG), None
        found = json, None
        if len(json) < _SHORT:
            if len(known) > _KNOWN:
                known.clear()
            with contextlib.suppress(TypeError):
                known[value] = found
        return found

    return described


_FEW_VALUES: dict[Any, Described] = {
    None: (b"null", None),
    True: (b'{"type":"bool","value":true}', None),
    False: (b'{"type":"bool","value":false}', None),
    ...: (b'{"type":"ellipsis","value":"..."}', None),
}


def _slice(walk: ValueWalk, value: Any, path: ValuePath) -> Described:
    bounds = value.start, value.stop, value.step
    return b'{"type":"slice","value":[%b,%b,%b]}' % tuple([_bound(walk, b) for b in bounds]), None


def _bound(walk: ValueWalk, bound: Any) -> bytes:
    if bound is None:
        return b"null"
    if type(bound) is int and -_FEW < bound < _FEW:
        return b"%d" % bound
    try:  # what ``__index__`` gives (0-d tensors); floats keep their value
        number = walk.ask(lambda bound: bound.__index__(), bound)
        return dumps(number if _LEAST < number < _MOST else _TOO_LONG)
    except unsignalled(Exception):
        return dumps(finite(bound) if issubclass(type(bound), float) else _text(type(bound).__name__))


def _of_framework(walk: ValueWalk, value: Any, path: ValuePath) -> Described:
    """Describe a value of a class that the framework's leaf knows."""
    try:
        return walk.leaf(value, path), None
    except OSError:
        raise  # a full disk says nothing about the value
    except unsignalled(Exception) as e:
        return walk.failed(value, e), None


def _odd(walk: ValueWalk, value: Any, path: ValuePath) -> Described:
    """Describe a single value of a class that is neither Python's usual ones nor the framework's."""
    try:
        found = walk.ask(_plain, value)
    except unsignalled(Exception) as e:
        return walk.failed(value, e), None
    return found or walk.give_up(value, "no encoding for this type"), None


def _plain(value: Any) -> bytes | None:
    """Return the JSON of a value of one of Python's or numpy's classes, or a subclass; None for any other."""
    made = (content(value) for kinds, content in _CONTENTS if isinstance(value, kinds))
    content = next((found for found in made if found is not None), None)
    if content is None:
        return None
    text = content["value"]
    if isinstance(text, str) and not (text == MINUS_INFINITY and isinstance(value, float | np.floating)):
        content["value"] = inert(text)
    return dumps({"type": type(value).__name__, **content})


def _whole_number(value: int) -> dict[str, Any]:  # IntEnum and other subclasses
    number = int.__int__(value)
    if _LEAST < number < _MOST:
        return {"value": number}
    return {"type": _type_name(type(value)), "value": None, "unsupported": _TOO_LONG}


def _set_of_plain(value: Any) -> dict[str, Any] | None:
    if not all(isinstance(v, (int, float, str, bool)) for v in value):
        return None
    return {"value": _text(f"{{{', '.join(sorted(map(repr, value)))}}}")}


def _function(value: Any) -> dict[str, Any]:
    name = getattr(value, "__qualname__", value.__class__.__name__)
    return {"type": "function", "value": f"{getattr(value, '__module__', '')}.{name}"}


def _numpy_scalar(value: np.generic[Any]) -> dict[str, Any]:
    item = value.item()
    if isinstance(item, float):
        return {"value": finite(item)}
    content = item if isinstance(item, (bool, int, str)) else _text(value)
    return {"type": "bool", "value": content} if isinstance(value, np.bool_) else {"value": content}


#: Classes -> the function that encodes values of them and of subclasses, or returns None; the first result counts.
_CONTENTS: tuple[tuple[Any, Callable[[Any], dict[str, Any] | None]], ...] = (
    (np.generic, _numpy_scalar),
    (enum.Enum, lambda value: None if isinstance(value, (int, str)) else {"value": value.name}),
    (int, _whole_number),
    (float, lambda value: {"value": finite(float.__float__(value))}),
    (str, lambda value: {"value": str.__str__(value)}),
    ((complex, decimal.Decimal, range), lambda value: {"value": _text(value)}),
    ((bytes, bytearray), lambda value: {"value": _text(bytes(value[:_TEXT]).hex()), "length": len(value)}),
    ((set, frozenset), _set_of_plain),
    (type, lambda value: {"type": "type", "value": _type_name(value)}),
    ((types.FunctionType, types.BuiltinFunctionType, types.MethodType), _function),
)


def _text(value: object) -> str:
    """Return ``str(value)``; a long one is cut, with its length added."""
    text = str(value)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}... ({len(text)} characters)"


# -- what has parts ---------------------------------------------------------------------------------------


def _sequence(read: Callable[[Any], Any] | None) -> Describe:
    """Return a function that encodes lists and tuples.

    read: makes a list of a value whose class may be the user's; None for Python's own classes.
    """

    def described(walk: ValueWalk, value: Any, path: ValuePath) -> Described:
        try:
            items = value if read is None else walk.ask(read, value)
        except unsignalled(Exception) as e:
            return walk.failed(value, e), None
        above = walk.above
        if len(above) >= MAX_DEPTH or id(value) in above:
            return _no_further(walk, value), None
        above.append(id(value))
        table = walk.table
        parts: list[bytes] = []
        forms: list[Form] = []
        for i, item in enumerate(items):
            walk.left -= 1
            if walk.left < 0:
                why = f"{len(items) - i} more elements: over {MAX_LEAVES} values in one argument"
                parts.append(walk.give_up(items, why))
                forms.append(None)
                break
            try:
                describe = table[type(item)]
            except unsignalled(Exception):  # not only KeyError: a metaclass may give its classes no hash
                describe = first_met
            part, form = describe(walk, item, (*path, i))
            parts += (part,)
            forms += (form,)
        above.pop()
        return b"[%b]" % b",".join(parts), forms or walk.empty(forms)

    return described


# A mapping is read once, here: the user's own containers may raise, and other threads may change them meanwhile.
_Pairs = list[tuple[Any, Any]]


def _pairs(value: Mapping[Any, Any]) -> _Pairs:
    return [(key, item) for key, item in itertools.islice(value.items(), MAX_LEAVES + 1)]


def _fields(read: Callable[[Any], _Pairs], *, own: bool = True) -> Describe:
    """Return a function that encodes values with named parts, as dicts and dataclasses.

    read: returns the (name, part) pairs of a value.
    own: whether the class may be the user's.
    """

    def described(walk: ValueWalk, value: Any, path: ValuePath) -> Described:
        try:
            items = walk.ask(read, value) if own else read(value)
        except unsignalled(Exception) as e:
            return walk.failed(value, e), None
        above = walk.above
        if len(above) >= MAX_DEPTH or id(value) in above:
            return _no_further(walk, value), None
        above.append(id(value))
        table = walk.table
        parts: list[bytes] = []
        forms: dict[str, Form] = {}
        for key, item in items:
            walk.left -= 1
            if walk.left < 0:
                parts.append(b'"...":' + walk.give_up(value, f"over {MAX_LEAVES} values in one argument"))
                forms["..."] = None
                break
            name = key if type(key) is str else _name(walk, key)
            while name in forms:  # {1: a, "1": b}: both must be kept
                name += "'"
            try:
                describe = table[type(item)]
            except unsignalled(Exception):
                describe = first_met
            part, forms[name] = describe(walk, item, (*path, name))
            parts += (json_key(name) + part,)
        above.pop()
        return b"{%b}" % b",".join(parts), forms or walk.empty(forms)

    return described


def _name(walk: ValueWalk, key: Any) -> str:
    try:  # str() of a string enum gives its member's name, not its text
        name: str = str.__str__(key) if issubclass(type(key), str) else walk.ask(str, key)
        return name
    except unsignalled(Exception):
        return f"<{_type_name(type(key))}>"


@functools.lru_cache(_KNOWN)
def json_key(name: str) -> bytes:
    """Return a name as the key of an object, with its colon."""
    return dumps(name) + b":"


def _no_further(walk: ValueWalk, value: Any) -> bytes:
    deep = len(walk.above) >= MAX_DEPTH
    return walk.give_up(value, f"nested deeper than {MAX_DEPTH} levels" if deep else "contains itself")


# -- classes that are met for the first time --------------------------------------------------------------


def first_met(walk: ValueWalk, value: Any, path: ValuePath) -> Described:
    """Describe a value of a class that is not in the table, and enter the class."""
    found = None
    try:
        json = walk.leaf(value, path)
        if json is not UNKNOWN:
            describe, found = _of_framework, (json, None)
        else:
            describe = walk.ask(_kind, value)
    except OSError:
        raise
    except unsignalled(Exception) as e:
        return walk.failed(value, e), None
    if len(walk.table) < _KNOWN and _is_itself(walk, value):
        with contextlib.suppress(Exception):  # a class without a hash is met anew each time
            walk.table[type(value)] = describe
    return found or describe(walk, value, path)


def _kind(value: Any) -> Describe:
    if isinstance(value, type):
        return _odd
    if _is_mapping(value):
        return _MAPPING
    if isinstance(value, tuple) and hasattr(value, "_fields") and hasattr(value, "_asdict"):
        return _NAMED_TUPLE
    if dataclasses.is_dataclass(value):
        return _DATACLASS
    return _OWN_LIST if isinstance(value, (list, tuple)) else _odd


def _is_mapping(value: Any) -> bool:
    try:
        return isinstance(value, Mapping)
    except TypeError:  # a class without a hash, which no ABC looks at
        return any(base is dict or base is Mapping for base in type(value).__mro__)


def _is_itself(walk: ValueWalk, value: Any) -> bool:
    """Return whether a value's ``__class__`` is its class: a proxy gives that of the value which it stands for."""
    try:
        return walk.ask(lambda value: value.__class__, value) is type(value)
    except unsignalled(Exception):
        return False


_LIST, _OWN_LIST, _DICT = _sequence(None), _sequence(list), _fields(_pairs, own=False)
_NAMED_TUPLE = _fields(lambda x: list(zip(x._fields, x, strict=False)))
_DATACLASS = _fields(lambda x: [(f.name, getattr(x, f.name, None)) for f in dataclasses.fields(x)])
_MAPPING = _fields(_pairs)
#: The functions that encode values with parts.
CONTAINERS = frozenset((_LIST, _OWN_LIST, _DICT, _MAPPING, _NAMED_TUPLE, _DATACLASS))
#: Python's usual classes -> the function that encodes their values.
TABLE: dict[type, Describe] = {
    int: remembering(lambda _, x, path: b'{"type":"int","value":%d}' % x if _LEAST < x < _MOST else None),
    str: remembering(lambda _, x, path: b'{"type":"str","value":%b}' % dumps(inert(x))),
    # 0.0 == -0.0: not remembered
    float: lambda _, x, path: (b'{"type":"float","value":%b}' % encode(finite(x)), None),
    **dict.fromkeys((bool, type(None), type(...)), lambda _, x, path: _FEW_VALUES[x]),
    slice: _slice,
    **dict.fromkeys((list, tuple), _LIST),
    **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict), _DICT),
}
