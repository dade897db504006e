"""Encode nested arguments as JSON that mirrors them (spec/values.md).

The caller hands in a leaf: a function that encodes what belongs to its framework (tensors, dtypes, ...)
and returns `UNKNOWN` for the rest. Nothing here knows a framework, and nothing is dropped without a note.
"""

from __future__ import annotations

import dataclasses
import decimal
import enum
import itertools
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .excerpts import error_text
from .jsonio import finite

__all__ = [
    "MAX_DEPTH",
    "MAX_LEAVES",
    "UNKNOWN",
    "EncodeLeaf",
    "ValueEncoder",
    "ValuePath",
    "is_leaf",
    "unsupported",
]

ValuePath = tuple[int | str, ...]
EncodeLeaf = Callable[[Any, ValuePath], Any]

#: The result of a leaf for a value that does not belong to its framework.
UNKNOWN: Any = object()
MAX_DEPTH = 24
MAX_LEAVES = 20_000
_TEXT = 4096
# Python refuses to convert longer integers to text and back.
_MOST = 10**4000
_LEAST = -_MOST
_TOO_LONG = "a whole number of more than 4000 digits"


def unsupported(value: object, why: str) -> dict[str, Any]:
    """Return the placeholder for a value that has no encoding: its type, and the reason."""
    return {"type": _type_name(type(value)), "value": None, "unsupported": why}


def is_leaf(encoded: Any) -> bool:
    """Return whether encoded JSON is a single value, not a container (whose ``type`` is an encoded value)."""
    return isinstance(encoded, dict) and isinstance(encoded.get("type"), str)


def _type_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


class ValueEncoder:
    """Encode values as JSON with one function for leaves; ``note(reason)`` gets what could not be encoded."""

    def __init__(self, leaf: EncodeLeaf, note: Callable[[str], None]) -> None:
        self._leaf = leaf
        self._note = note
        self._left = MAX_LEAVES

    def describe(self, value: Any, path: ValuePath = ()) -> Any:
        """Return the JSON of one value.

        path: its place, passed on to the leaf function.
        """
        self._left = MAX_LEAVES
        return self._any(value, path, ())

    def output(self, value: Any) -> Any:
        """Return the JSON of what a call returned: tuples and lists by element, anything else as its one element.

        Named tuples, mappings and dataclasses become objects, as their fields have names.
        """
        self._left = MAX_LEAVES
        if _has_parts(value):
            return self._any(value, (), ())
        return [self._any(value, (0,), ())]

    def failed(self, value: Any, error: Exception) -> Any:
        """Return the placeholder for a value that raised this error when it was looked at."""
        return self._give_up(value, f"looking at it raised {error_text(error)[:200]}")

    def _any(self, value: Any, path: ValuePath, above: tuple[int, ...]) -> Any:
        if value is None:
            return None
        cls = type(value)
        if cls is int:
            if not _LEAST < value < _MOST:
                return self._give_up(value, _TOO_LONG)
            return {"type": "int", "value": value}
        if cls is bool or cls is str:
            return {"type": cls.__name__, "value": value}
        if cls is float:
            return {"type": "float", "value": finite(value)}
        try:
            found = self._leaf(value, path)
            if found is not UNKNOWN:
                return found
            fields, elements = _parts(value)
        except OSError:
            raise  # a full disk says nothing about the value
        except Exception as e:
            return self.failed(value, e)
        if fields is None and elements is None:
            return self._other(value)
        if len(above) >= MAX_DEPTH:
            return self._give_up(value, f"nested deeper than {MAX_DEPTH} levels")
        if id(value) in above:
            return self._give_up(value, "contains itself")
        inside = (*above, id(value))
        if elements is not None:
            return self._sequence(elements, path, inside)
        return self._mapping(value, fields or [], path, inside)

    def _sequence(
        self, items: list[Any] | tuple[Any, ...], path: ValuePath, above: tuple[int, ...]
    ) -> list[Any]:
        out: list[Any] = []
        for i, item in enumerate(items):
            self._left -= 1
            if self._left < 0:
                why = f"{len(items) - i} more elements: over {MAX_LEAVES} values in one argument"
                out.append(self._give_up(items, why))
                break
            out.append(self._any(item, (*path, i), above))
        return out

    def _mapping(
        self, value: Any, items: list[tuple[Any, Any]], path: ValuePath, above: tuple[int, ...]
    ) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, item in items:
            self._left -= 1
            if self._left < 0:
                out["..."] = self._give_up(value, f"over {MAX_LEAVES} values in one argument")
                break
            name = key if type(key) is str else _key(key)
            while name in out:  # {1: a, "1": b}: both must be kept
                name += "'"
            out[name] = self._any(item, (*path, name), above)
        return out

    def _other(self, value: Any) -> Any:
        try:
            found = _plain(value)
        except Exception as e:
            return self.failed(value, e)
        if found is not None:
            return found
        return self._give_up(value, "no encoding for this type")

    def _give_up(self, value: Any, why: str) -> dict[str, Any]:
        out = unsupported(value, why)
        self._note(f"{out['type']}: {why}")
        return out


def _parts(value: Any) -> tuple[list[tuple[Any, Any]] | None, list[Any] | tuple[Any, ...] | None]:
    """Return (named fields, None) or (None, elements) of a value with parts, else (None, None).

    Both are read once, here: the user's own containers may raise, and other threads may change them meanwhile.
    """
    if type(value) is list or type(value) is tuple:
        return None, value
    if isinstance(value, type):
        return None, None
    fields = _fields(value)
    if fields is not None:
        return [(key, item) for key, item in itertools.islice(fields.items(), MAX_LEAVES + 1)], None
    return None, list(value) if isinstance(value, (list, tuple)) else None


def _key(key: Any) -> str:
    """Return a key as text."""
    try:
        return str(key)
    except Exception:
        return f"<{_type_name(type(key))}>"


def _fields(value: Any) -> Mapping[Any, Any] | None:
    """Return the named fields of a mapping, named tuple or dataclass instance; None for anything else."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields") and hasattr(value, "_asdict"):
        return dict(zip(value._fields, value, strict=False))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    return None


def _has_parts(value: Any) -> bool:
    try:
        return isinstance(value, (tuple, list)) or _fields(value) is not None
    except Exception:
        return False


def _text(value: object) -> str:
    """Return ``str(value)``; a long one is cut, with its length added."""
    text = str(value)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}... ({len(text)} characters)"


def _plain(value: Any) -> dict[str, Any] | None:
    """Encode a value of Python or numpy itself; return None for anything else."""
    cls = type(value)
    if isinstance(value, slice):
        return {"type": "slice", "value": [_bound(b) for b in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"type": "ellipsis", "value": "..."}
    if isinstance(value, np.generic):
        return _numpy_scalar(value)
    if isinstance(value, enum.Enum) and not isinstance(value, (int, str)):
        return {"type": cls.__name__, "value": value.name}
    if isinstance(value, int):  # IntEnum and other subclasses
        number = int(value)
        if _LEAST < number < _MOST:
            return {"type": cls.__name__, "value": number}
        return unsupported(value, _TOO_LONG)
    if isinstance(value, float):
        return {"type": cls.__name__, "value": finite(float(value))}
    if isinstance(value, str):
        return {"type": cls.__name__, "value": str.__str__(value)}
    if isinstance(value, (complex, decimal.Decimal, range)):
        return {"type": cls.__name__, "value": _text(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"type": cls.__name__, "value": _text(bytes(value[:_TEXT]).hex()), "length": len(value)}
    if isinstance(value, (set, frozenset)) and all(isinstance(v, (int, float, str, bool)) for v in value):
        return {"type": cls.__name__, "value": sorted(_text(v) for v in value)}
    if isinstance(value, type):
        return {"type": "type", "value": _type_name(value)}
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        name = getattr(value, "__qualname__", value.__class__.__name__)
        return {"type": "function", "value": f"{getattr(value, '__module__', '')}.{name}"}
    return None


def _numpy_scalar(value: np.generic[Any]) -> dict[str, Any]:
    name = "bool" if isinstance(value, np.bool_) else type(value).__name__
    item = value.item()
    if isinstance(item, (bool, int, str)):
        return {"type": name, "value": item}
    if isinstance(item, float):
        return {"type": name, "value": finite(item)}
    return {"type": name, "value": _text(value)}


def _bound(value: Any) -> Any:
    """Encode a slice bound: None, an int, or what ``__index__`` gives (0-d tensors); floats keep their value."""
    if value is None:
        return value
    try:
        number = value.__index__()
        return number if _LEAST < number < _MOST else _TOO_LONG
    except Exception:
        return finite(value) if isinstance(value, float) else _text(type(value).__name__)
