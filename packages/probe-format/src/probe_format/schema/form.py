"""Make a JSON Schema from a Python class, and check documents against it, so that their form is written only once.

The fields of a class (of attrs, or a TypedDict) are the keys of a JSON object, and their types say which values fit.
``Annotated`` adds what JSON Schema can say and types cannot; its ``description`` names the value in messages.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from attrs import NOTHING, fields

from probe_format.errors import Problem
from probe_format.excerpts import brief
from probe_format.values import ValuePath

Schema = Mapping[str, Any]
Check = Callable[[Any, ValuePath], Iterator[Problem]]
Count = Annotated[int, {"minimum": 0, "description": "a count"}]

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}
_CLASSES = {"string": str, "boolean": bool, "null": NoneType, "array": list, "object": dict}
_WORDS = {"string": "a text", "boolean": "true or false", "array": "a list", "null": "null"}
_WORDS |= {"object": "a JSON object", "integer": "a whole number", "number": "a number"}
_checks: dict[str, Check] = {}


def checked_by(name: str) -> Callable[[Check], Check]:
    """Let the decorated function check the values whose schema is a ``$ref`` to this name.

    Such values may nest deeper than `misfits` can recurse.
    """

    def kept(check: Check) -> Check:
        return _checks.setdefault(f"#/$defs/{name}", check)

    return kept


def path_text(path: ValuePath) -> str:
    """Return ``input_args.0`` for ``("input_args", 0)``."""
    return ".".join(map(str, path))


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of the values that a type allows."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Annotated, NotRequired):
        return schema_of(inner[0]) | (inner[1] if origin is Annotated else {})
    if kind is Any:
        return {}
    if origin is None and kind in _TYPES:
        return {"type": _TYPES[kind]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, UnionType):
        return {"anyOf": [*map(schema_of, inner)]}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    if origin in (list, tuple) and (origin is list or inner[1] is ...):
        return {"type": "array", "items": schema_of(inner[0])}
    if origin is tuple:
        size = len(inner)
        return {"type": "array", "prefixItems": [*map(schema_of, inner)], "minItems": size, "maxItems": size}
    hints = get_type_hints(kind, include_extras=True)
    needed = getattr(kind, "__required_keys__", None)  # of a TypedDict
    needed = [each.name for each in fields(kind) if each.default is NOTHING] if needed is None else needed
    properties = {key: schema_of(hint) for key, hint in hints.items()}
    return {"type": "object", "required": [key for key in hints if key in needed], "properties": properties}


def misfits(value: Any, schema: Schema, path: ValuePath = ()) -> Iterator[Problem]:
    """Yield each place where a value does not fit a schema of `schema_of`. path: where the value is, for messages."""
    if not _fits(value, schema):
        yield Problem(path_text(path), f"{brief(value)} is not {_described(schema)}.")
    elif "$ref" in schema:
        yield from _checks[schema["$ref"]](value, path)
    elif isinstance(value, dict):
        yield from _in_object(value, schema, path)
    elif isinstance(value, list):
        first, rest = schema.get("prefixItems", ()), schema.get("items", {})
        for i, item in enumerate(value):
            form = first[i] if i < len(first) else rest
            if form and not _is_plain(item, form):
                yield from misfits(item, form, (*path, i))


def _in_object(value: Mapping[str, Any], schema: Schema, path: ValuePath) -> Iterator[Problem]:
    for key in schema.get("required", ()):
        if key not in value:
            yield Problem(path_text((*path, key)), "is missing.")
    for key, others in schema.get("dependentRequired", {}).items():
        if key in value and (absent := [other for other in others if other not in value]):
            what = f"has {key} but not {absent[0]}; the {len(others) + 1} go together."
            yield Problem(path_text(path), what)
            break
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
    for key, item in value.items():
        form = properties.get(key, rest)
        if form and not _is_plain(item, form):
            yield from misfits(item, form, (*path, key))


def _is_plain(value: Any, schema: Schema) -> bool:
    """Return whether a value is no object or list, and fits: nearly all are such, and need no path for a message."""
    kind = type(value)
    return kind is not dict and kind is not list and "$ref" not in schema and _fits(value, schema)


def _fits(value: Any, schema: Schema) -> bool:
    """Return whether a value itself fits, whatever values are in it."""
    if (kind := schema.get("type")) is not None:
        if type(value) is not _CLASSES.get(kind) and not _is(kind, value):
            return False
        if len(schema) == 1:
            return True
    if "enum" in schema and not any(type(each) is type(value) and each == value for each in schema["enum"]):
        return False
    if "anyOf" in schema and not any(
        _is_plain(value, each) or not any(misfits(value, each)) for each in schema["anyOf"]
    ):
        return False
    if isinstance(value, str):
        return "pattern" not in schema or re.search(schema["pattern"], value) is not None
    size = len(value) if isinstance(value, list) else value
    least, most = ("minItems", "maxItems") if isinstance(value, list) else ("minimum", "maximum")
    return not (least in schema and size < schema[least]) and not (most in schema and size > schema[most])


def _is(kind: str, value: Any) -> bool:
    """Return whether a value is of a JSON type: in JSON 3.0 is an integer, and true is no number."""
    if kind not in ("integer", "number"):
        return isinstance(value, _CLASSES[kind])
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and (kind == "number" or isinstance(value, int) or value.is_integer())


def _described(schema: Schema) -> str:
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if "description" not in schema and "anyOf" in schema:
        return " or ".join(map(_described, schema["anyOf"]))
    return str(schema.get("description") or _WORDS[schema["type"]])
