"""Walk over the encoded values inside a record, and check them (spec/values.md, spec/statistics.md).

A value is null, a list of values, an object of values, or a leaf: an object whose ``type`` is a string. (In the
user's objects a key ``type`` holds a value, never a bare string, so the two cannot be confused.) A leaf that also
has a ``dtype`` and a ``shape`` is a tensor or a numpy array.

The walk keeps its own stack instead of recursing: a damaged file may nest deeper than Python can.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from probe_format.errors import Problem
from probe_format.excerpts import brief
from probe_format.jsonio import INFINITY, MINUS_INFINITY
from probe_format.statistics import BROKEN, COUNTS, NUMBERS, WHOLE
from probe_format.values import ValuePath, is_leaf

_NON_FINITE = ("NaN", INFINITY, MINUS_INFINITY, "Infinity", "-Infinity")
#: Values, each with its path.
Placed = Iterator[tuple[ValuePath, Any]]
#: No framework has more elements in a tensor, or more dimensions.
_MOST_ELEMENTS, _MOST_DIMENSIONS = 2**63 - 1, 64


def path_text(path: ValuePath) -> str:
    """Return ``input_args.0`` for ``("input_args", 0)``."""
    return ".".join(str(key) for key in path)


def is_tensor(node: Any) -> bool:
    """Return whether an encoded value describes a tensor or an array."""
    if not (isinstance(node, dict) and isinstance(node.get("type"), str)):
        return False
    return isinstance(node.get("dtype"), str) and isinstance(node.get("shape"), list)


def _claims_to_be_one(node: dict[str, Any]) -> bool:
    """Return whether a leaf has what only a tensor has, whatever is wrong with it."""
    return "shape" in node and "dtype" in node and isinstance(node.get("type"), str)


def why_lost(node: Any) -> str:
    """Return why the gradient that belongs in a slot, or the file of a tensor, is lost; empty where it is not."""
    why = node.get("lost") if isinstance(node, dict) else None
    return why if isinstance(why, str) else ""


def walk(value: Any, ends: Callable[[dict[str, Any]], bool], path: ValuePath = ()) -> Placed:
    """Yield what is below ``value`` and holds no values, with its path of keys and indexes, in document order.

    ends: whether an object stands for one value; lists and objects that hold nothing stand for themselves.
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
    """Yield every leaf below ``value`` that is not a tensor (numbers, texts, None, no encoding), with its path."""
    found = walk(value, is_leaf)
    return ((path, node) for path, node in found if not (is_tensor(node) or node == [] or node == {}))


def check_values(value: Any, path: ValuePath) -> Iterator[Problem]:
    """Yield every fault in a value that Probe wrote, by the strict grammar."""
    for at, node in walk(value, lambda node: is_leaf(node) or isinstance(node.get("class_type"), str), path):
        if isinstance(node, dict) and _claims_to_be_one(node):
            yield from _check_tensor(node, at)
        elif not isinstance(node, dict | list | None):
            yield Problem(path_text(at), f"a bare {type(node).__name__} where an encoded value belongs.")


def check_foreign(value: Any, path: ValuePath) -> Iterator[Problem]:
    """Yield the faults in a value, of msprobe's too, that would stop any reader: only tensors are checked."""
    for at, node in walk(value, _claims_to_be_one, path):
        if node and isinstance(node, dict):
            yield from _check_foreign(node, at)


def readable(value: Any) -> bool:
    """Return whether `check_foreign` finds nothing, in a fraction of its time: it is asked of every record read."""
    todo = [value]
    for node in todo:  # which grows
        if type(node) is list:
            todo += node
        elif type(node) is dict:
            if "shape" not in node or not _claims_to_be_one(node):
                todo += node.values()
            elif not _is_usual(node) and any(_check_foreign(node, ())):
                return False
    return True


def _is_usual(tensor: dict[str, Any]) -> bool:
    """Return whether a tensor has one list, its shape, which is one of whole numbers, and no text for a number."""
    kinds = [*map(type, tensor.values())]
    shape = tensor["shape"]
    if (
        type(shape) is not list
        or type(tensor["dtype"]) is not str
        or kinds.count(list) > 1
        or dict in kinds
        or (kinds.count(str) > 2 and any(map(_is_no_number, map(tensor.get, NUMBERS))))
        or len(shape) > _MOST_DIMENSIONS
        or set(map(type, shape)) - {int}
    ):
        return False
    return not shape or (min(shape) >= 0 and max(*shape, math.prod(shape)) <= _MOST_ELEMENTS)


def _check_foreign(node: dict[str, Any], at: ValuePath) -> Iterator[Problem]:
    yield from _check_form(node, at)
    yield from _check_numbers(node, at)
    for key in (*COUNTS, "md5"):
        if isinstance(node.get(key), list | dict):
            yield Problem(path_text((*at, key)), f"{brief(node[key])} is neither a number nor a text.")


def _check_form(node: dict[str, Any], at: ValuePath) -> Iterator[Problem]:
    if not isinstance(node["dtype"], str):
        yield Problem(path_text((*at, "dtype")), f"{brief(node['dtype'])} is not a text.")
    elements, shape = 1, node["shape"]
    if not isinstance(shape, list):
        yield Problem(path_text((*at, "shape")), f"{brief(shape)} is not a list of sizes.")
        return
    for size in shape:
        if not (type(size) is int or is_whole(size)) or not 0 <= size <= _MOST_ELEMENTS:
            yield Problem(path_text((*at, "shape")), f"{brief(size)} is not a size.")
            break
        elements *= size
    else:
        if elements > _MOST_ELEMENTS or len(shape) > _MOST_DIMENSIONS:
            yield Problem(path_text((*at, "shape")), f"no tensor has the shape {brief(shape)}.")


def _check_numbers(node: dict[str, Any], at: ValuePath) -> Iterator[Problem]:
    for key in NUMBERS:
        if _is_no_number(node.get(key)):
            where = path_text((*at, key))
            yield Problem(where, f"{brief(node[key])} is not a number, 'NaN', 'inf' or ' -inf'.")


def _is_no_number(x: Any) -> bool:
    return not (isinstance(x, bool | int | float | None) or x in _NON_FINITE)


def _check_tensor(node: dict[str, Any], at: ValuePath) -> Iterator[Problem]:
    yield from _check_form(node, at)
    where = path_text(at)
    if any(key not in node for key in WHOLE) and "md5" not in node and "unsupported" not in node:
        yield Problem(where, "has neither all of Max, Min, Mean, Norm, nor a checksum, nor a word why not.")
    yield from _check_numbers(node, at)
    present = [key for key in BROKEN if key in node]
    if present and len(present) < len(BROKEN):
        absent = [key for key in BROKEN if key not in node]
        yield Problem(where, f"has {present[0]} but not {absent[0]}; the five go together.")
    yield from misfits(node, _FORMS, f"{where}.")


def is_whole(x: Any) -> bool:
    """Return whether JSON Schema takes a value for an integer: 3.0 as well."""
    return not isinstance(x, bool) and (isinstance(x, int) or (isinstance(x, float) and x.is_integer()))


#: Key -> whether a value may be there, and what is said of one that may not.
Forms = Mapping[str, tuple[Callable[[Any], Any], str]]


def misfits(holder: Mapping[str, Any], forms: Forms, where: str = "") -> Iterator[Problem]:
    """Yield what an object holds under its keys and may not. where: what stands before a key in the messages."""
    for key, (right, wrong) in forms.items():
        if key in holder and not right(holder[key]):
            yield Problem(f"{where}{key}", wrong.format(brief(holder[key])))


def all_are(kind: type, items: Any) -> bool:
    """Return whether a list holds nothing else, or a table under its keys."""
    return all(isinstance(item, kind) for item in (items.values() if isinstance(items, dict) else items))


TEXT = (lambda x: isinstance(x, str)), "{} is not a text."
FLAG = (lambda x: isinstance(x, bool)), "{} is neither true nor false."
COUNT = (lambda x: is_whole(x) and x >= 0), "{} is not a count."
_FORMS: Forms = {
    **dict.fromkeys(COUNTS, COUNT),
    **dict.fromkeys(("data_name", "data_crc32", "unsupported", "lost"), TEXT),
    "requires_grad": FLAG,
    "shared_with": (lambda x: isinstance(x, list) and x and all_are(str, x), "{} is not a list of slots."),
    "md5": (lambda x: isinstance(x, str | None), "{} is neither a text nor null."),
}
