"""Walk over the encoded values inside a record, and check them (spec/values.md, spec/statistics.md).

A value is null, a list of values, an object of values, or a leaf: an object whose ``type`` is a string. (In the
user's objects a key ``type`` holds a value, never a bare string, so the two cannot be confused.) A leaf that also
has a ``dtype`` and a ``shape`` is a tensor or a numpy array.

Each walk keeps its own stack instead of recursing: a damaged file may nest deeper than Python can.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from probe_format.errors import Problem
from probe_format.excerpts import brief
from probe_format.values import ValuePath, is_leaf

__all__ = [
    "NON_FINITE",
    "check_foreign",
    "check_values",
    "is_tensor",
    "others",
    "path_text",
    "tensors",
    "why_lost",
]

NON_FINITE = ("NaN", "Infinity", "-Infinity")
_STATISTICS = ("Max", "Min", "Mean", "Norm")
_BROKEN = ("nan_count", "posinf_count", "neginf_count", "finite_max", "finite_min")
_COUNTS = ("nan_count", "posinf_count", "neginf_count", "zero_count")
_TEXTS = ("data_name", "unsupported", "lost")


def path_text(path: ValuePath) -> str:
    """Return ``input_args.0`` for ``("input_args", 0)``."""
    return ".".join(str(key) for key in path)


def is_tensor(node: Any) -> bool:
    """Return whether an encoded value describes a tensor or an array."""
    return (
        isinstance(node, dict)
        and isinstance(node.get("type"), str)
        and isinstance(node.get("dtype"), str)
        and isinstance(node.get("shape"), list)
    )


def why_lost(node: Any) -> str:
    """Return why the gradient that belongs in a slot, or the file of a tensor, is lost; empty where it is not."""
    why = node.get("lost") if isinstance(node, dict) else None
    return why if isinstance(why, str) else ""


def tensors(value: Any) -> Iterator[tuple[ValuePath, dict[str, Any]]]:
    """Yield every tensor below ``value`` with its path of keys and indexes, in document order."""
    # Each path is made when it is yielded: all paths of a long, deeply nested list would fill the memory.
    todo: list[tuple[ValuePath, str | int | None, Any]] = [((), None, value)]
    while todo:
        above, last, node = todo.pop()
        if isinstance(node, list):
            path = above if last is None else (*above, last)
            todo.extend((path, i, node[i]) for i in range(len(node) - 1, -1, -1))
        elif isinstance(node, dict):
            path = above if last is None else (*above, last)
            if is_tensor(node):
                yield path, node
            else:
                todo.extend((path, key, node[key]) for key in reversed(node))


def others(value: Any) -> Iterator[tuple[ValuePath, Any]]:
    """Yield every leaf below ``value`` that is not a tensor (numbers, texts, None, no encoding), with its path."""
    todo: list[tuple[ValuePath, str | int | None, Any]] = [((), None, value)]
    while todo:
        above, last, node = todo.pop()
        path = above if last is None else (*above, last)
        if isinstance(node, list):
            todo.extend((path, i, node[i]) for i in range(len(node) - 1, -1, -1))
        elif isinstance(node, dict) and not is_leaf(node):
            todo.extend((path, key, node[key]) for key in reversed(node))
        elif not is_tensor(node):
            yield path, node


def check_values(value: Any, path: ValuePath) -> Iterator[Problem]:
    """Yield every fault in a value that Probe wrote, by the strict grammar."""
    todo: list[tuple[ValuePath, str | int | None, Any]] = [(path, None, value)]
    while todo:
        above, last, node = todo.pop()
        if node is None:
            continue
        at = above if last is None else (*above, last)
        if isinstance(node, list):
            todo.extend((at, i, node[i]) for i in range(len(node) - 1, -1, -1))
        elif not isinstance(node, dict):
            yield Problem(path_text(at), f"a bare {type(node).__name__} where an encoded value belongs.")
        elif is_tensor(node):
            yield from _check_tensor(node, at, strict=True)
        elif not is_leaf(node) and not isinstance(node.get("class_type"), str):
            todo.extend((at, key, node[key]) for key in reversed(node))


def check_foreign(value: Any, path: ValuePath) -> Iterator[Problem]:
    """Yield the faults in a value of msprobe's that would stop any reader: only tensors are checked."""
    for below, node in tensors(value):
        yield from _check_tensor(node, (*path, *below), strict=False)


def _check_tensor(node: dict[str, Any], at: ValuePath, *, strict: bool) -> Iterator[Problem]:
    for size in node["shape"]:
        if not _is_count(size):
            yield Problem(path_text((*at, "shape")), f"{brief(size)} is not a size.")
            break
    if not strict:
        return
    where = path_text(at)
    if any(key not in node for key in _STATISTICS) and "md5" not in node and "unsupported" not in node:
        yield Problem(where, "has neither all of Max, Min, Mean, Norm, nor a checksum, nor a word why not.")
    for key in (*_STATISTICS, "finite_max", "finite_min"):
        if key in node and not _is_statistic(node[key]):
            yield Problem(
                f"{where}.{key}", f"{brief(node[key])} is not a number, 'NaN', 'Infinity' or '-Infinity'."
            )
    present = [key for key in _BROKEN if key in node]
    if present and len(present) < len(_BROKEN):
        absent = [key for key in _BROKEN if key not in node]
        yield Problem(where, f"has {present[0]} but not {absent[0]}; the five go together.")
    for key in _COUNTS:
        if key in node and not _is_count(node[key]):
            yield Problem(f"{where}.{key}", f"{brief(node[key])} is not a count.")
    for key in _TEXTS:
        if key in node and not isinstance(node[key], str):
            yield Problem(f"{where}.{key}", f"{brief(node[key])} is not a text.")
    if "requires_grad" in node and not isinstance(node["requires_grad"], bool):
        yield Problem(f"{where}.requires_grad", f"{brief(node['requires_grad'])} is neither true nor false.")
    others = node.get("shared_with", [""])
    if not isinstance(others, list) or not others or not all(isinstance(other, str) for other in others):
        yield Problem(f"{where}.shared_with", f"{brief(others)} is not a list of slots.")
    if "md5" in node and not (node["md5"] is None or isinstance(node["md5"], str)):
        yield Problem(f"{where}.md5", f"{brief(node['md5'])} is neither a text nor null.")


def _is_count(x: Any) -> bool:
    # JSON Schema accepts 3.0 as an integer, so this check does too.
    return not isinstance(x, bool) and ((isinstance(x, int) and x >= 0) or _whole(x))


def _whole(x: Any) -> bool:
    return isinstance(x, float) and x.is_integer() and x >= 0


def _is_statistic(x: Any) -> bool:
    return x is None or isinstance(x, bool | int | float) or x in NON_FINITE
