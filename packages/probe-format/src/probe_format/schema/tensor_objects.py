"""Walk over the encoded values inside a record, and check them (spec/values.md, spec/statistics.md).

A value is null, a list of values, an object of values, or a leaf: an object whose ``type`` is a string. (In the
user's objects a key ``type`` holds a value, never a bare string, so the two cannot be confused.) A leaf that also
has a ``dtype`` and a ``shape`` is a tensor or a numpy array.

The walk keeps its own stack instead of recursing: a damaged file may nest deeper than Python can.
"""

import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_args

from probe_format.errors import Problem
from probe_format.excerpts import brief
from probe_format.statistics import BROKEN, NUMBERS, SKETCH_SUMS, TABLE, WHOLE
from probe_format.values import ValuePath, is_leaf

from .form import Count, Schema, checked_by, misfits, path_text, schema_of

_Word = Literal["NaN", "inf", " -inf", "Infinity", "-Infinity"]
_NON_FINITE = get_args(_Word)
#: Values, each with its path.
Placed = Iterator[tuple[ValuePath, Any]]
#: No framework has more elements in a tensor, or more dimensions.
_MOST_ELEMENTS, _MOST_DIMENSIONS = 2**63 - 1, 64


def is_tensor(node: Any) -> bool:
    """Return whether an encoded value describes a tensor or an array."""
    if not (isinstance(node, dict) and isinstance(node.get("type"), str)):
        return False
    return isinstance(node.get("dtype"), str) and isinstance(node.get("shape"), list)


def _claims_to_be_one(node: dict[str, Any]) -> bool:
    """Return whether a leaf has the keys that only a tensor has, whatever is under them."""
    return "shape" in node and "dtype" in node and isinstance(node.get("type"), str)


def why_lost(node: Any) -> str:
    """Return why the gradient that belongs in a slot, or the file of a tensor, is lost; empty where it is not."""
    why = node.get("lost") if isinstance(node, dict) else None
    return why if isinstance(why, str) else ""


def walk(value: Any, ends: Callable[[dict[str, Any]], bool], path: ValuePath = ()) -> Placed:
    """Yield each single value below ``value`` with its path of keys and indexes, in document order.

    ends: returns whether an object is a single value; an empty list or object is always one.
    path: of ``value``.
    """
    # Each path is made when it is yielded: all paths of a long, deeply nested list would fill the memory.
    todo: list[tuple[ValuePath, str | int | None, Any]] = [(path, None, value)]
    while todo:
        above, last, node = todo.pop()
        at = above if last is None else (*above, last)
        if isinstance(node, list) and node:
            todo.extend((at, i, node[i]) for i in range(len(node) - 1, -1, -1))
        elif isinstance(node, dict) and node and not ends(node):
            todo.extend((at, key, node[key]) for key in reversed(node))
        else:
            yield at, node


def tensors(value: Any) -> Iterator[tuple[ValuePath, dict[str, Any]]]:
    """Yield every tensor below ``value`` with its path."""
    return ((path, node) for path, node in walk(value, is_tensor) if node and isinstance(node, dict))


def others(value: Any) -> Placed:
    """Yield every leaf below ``value`` that is not a tensor (numbers, texts, None, placeholders), with its path."""
    found = walk(value, is_leaf)
    return ((path, node) for path, node in found if not (is_tensor(node) or node == [] or node == {}))


@checked_by("value")
def _check_values(value: Any, path: ValuePath) -> Iterator[Problem]:
    """Yield every fault in a value that Probe wrote, by the strict grammar."""
    for at, node in walk(value, lambda node: is_leaf(node) or isinstance(node.get("class_type"), str), path):
        if isinstance(node, dict) and _claims_to_be_one(node):
            yield from _check_tensor(node, _FORM, at)
        elif not isinstance(node, dict | list | None):
            yield Problem(path_text(at), f"a bare {type(node).__name__} where an encoded value belongs.")


@checked_by("foreign")
def check_foreign(value: Any, path: ValuePath) -> Iterator[Problem]:
    """Yield the faults that would stop any reader of a value, also of msprobe's: only its tensors are checked."""
    for at, node in walk(value, _claims_to_be_one, path):
        if node and isinstance(node, dict):
            yield from _check_tensor(node, _FOREIGN_FORM, at)


def _check_tensor(node: dict[str, Any], schema: Schema, at: ValuePath) -> Iterator[Problem]:
    found = [*misfits(node, schema, at)]
    yield from found
    if not found and math.prod(node["shape"]) > _MOST_ELEMENTS:  # which JSON Schema cannot say
        yield Problem(path_text((*at, "shape")), f"no tensor has the shape {brief(node['shape'])}.")


def readable(value: Any) -> bool:
    """Return whether `check_foreign` finds nothing, in a fraction of its time, as every record read is checked."""
    todo = [value]
    for node in todo:  # to which the loop adds
        if type(node) is list:
            todo += node
        elif type(node) is dict:
            if "shape" not in node or not _claims_to_be_one(node):
                todo += node.values()
            elif not _is_usual(node) and any(_check_tensor(node, _FOREIGN_FORM, ())):
                return False
    return True


def _is_usual(tensor: dict[str, Any]) -> bool:
    """Return whether a tensor is so plainly well-formed that it needs no check against the schema.

    It has no list but its shape (of sizes) and its sketch, no object, and no text where a number belongs.
    """
    kinds = [*map(type, tensor.values())]
    shape = tensor["shape"]
    if (
        type(shape) is not list
        or type(tensor["dtype"]) is not str
        or kinds.count(list) > 1 + ("sketch" in tensor)
        or dict in kinds
        or (kinds.count(str) > 2 and any(map(_is_no_number, map(tensor.get, NUMBERS))))
        or len(shape) > _MOST_DIMENSIONS
        or set(map(type, shape)) - {int}
    ):
        return False
    return not shape or (min(shape) >= 0 and max(*shape, math.prod(shape)) <= _MOST_ELEMENTS)


def _is_no_number(x: Any) -> bool:
    return not (isinstance(x, bool | int | float | None) or x in _NON_FINITE)


_SIZE = {"minimum": 0, "maximum": _MOST_ELEMENTS, "description": "a size"}


class TensorObject(TypedDict):
    """Say what a tensor object holds besides its statistics (spec/statistics.md)."""

    type: str
    dtype: str
    shape: Annotated[
        list[Annotated[int, _SIZE]], {"maxItems": _MOST_DIMENSIONS, "description": "a list of sizes"}
    ]
    requires_grad: NotRequired[bool]
    device_mesh: NotRequired[Any]
    placements: NotRequired[Any]
    global_shape: NotRequired[Any]
    data_name: NotRequired[str]
    data_crc32: NotRequired[Annotated[str, {"pattern": "^[0-9a-f]{8}$", "description": "8 hex digits"}]]
    md5: NotRequired[str | None]
    sketch: NotRequired[
        Annotated[
            list[float], {"minItems": SKETCH_SUMS, "maxItems": SKETCH_SUMS, "description": "16 numbers"}
        ]
    ]
    layout: NotRequired[Any]
    stored: NotRequired[Any]
    hsdp_shard_size: NotRequired[Any]
    nested: NotRequired[Any]
    functorch: NotRequired[Any]
    shared_with: NotRequired[Annotated[list[str], {"minItems": 1, "description": "a list of slots"}]]
    found_late: NotRequired[Literal[True]]
    unsupported: NotRequired[str]
    lost: NotRequired[str]


def _statistics(count: Any) -> dict[str, Schema]:
    number = Annotated[float | bool | _Word | None, {"description": "a number, 'NaN', 'inf' or ' -inf'"}]
    return {each.key: schema_of(number if each.kind == "number" else count) for each in TABLE}


_FORM = schema_of(TensorObject)
_FORM["properties"] |= _statistics(Count)
_FORM["anyOf"] = [{"required": [*keys]} for keys in (WHOLE, ("md5",), ("unsupported",))]
_FORM["dependentRequired"] = {key: [other for other in BROKEN if other != key] for key in BROKEN}
_FORM["description"] = f"a tensor with {', '.join(WHOLE)}, a checksum, or a word why it has neither"
_SCALAR = float | str | bool | None
_FOREIGN = {key: _FORM["properties"][key] for key in ("dtype", "shape")} | _statistics(_SCALAR)
#: Of a tensor object of msprobe's little is relied upon.
_FOREIGN_FORM = {"properties": _FOREIGN | {"md5": schema_of(_SCALAR)}}
_TENSOR_LIKE = {
    "type": "object",
    "required": ["type", "dtype", "shape"],
    "properties": {"type": {"type": "string"}},
}
_LEAF_LIKE = [{"required": [key], "properties": {key: {"type": "string"}}} for key in ("type", "class_type")]


def _within(name: str) -> dict[str, Any]:
    return {"items": {"$ref": f"#/$defs/{name}"}, "additionalProperties": {"$ref": f"#/$defs/{name}"}}


_INSIDE = {"anyOf": [{"type": each} for each in ("null", "array", "object")]} | _within("value")
#: The schemas of what `_check_values` and `check_foreign` walk through.
VALUES = {
    "tensor": _FORM,
    "value": {
        "if": _TENSOR_LIKE,
        "then": {"$ref": "#/$defs/tensor"},
        "else": {"if": {"type": "object", "anyOf": _LEAF_LIKE}, "then": True, "else": _INSIDE},
    },
    "foreign": {"if": _TENSOR_LIKE, "then": _FOREIGN_FORM, "else": _within("foreign")},
}
