"""Places inside a record: nested lists and dicts of tensor objects, reached by a path."""

from __future__ import annotations

from typing import Any

__all__ = ["blank_slots", "get", "put"]


def blank_slots(shape: Any) -> list[Any]:
    """Empty slots: ``shape`` is a number of slots or a nested JSON of nulls."""
    if isinstance(shape, int):
        return [None] * shape
    return [_copy(s) for s in shape] if isinstance(shape, list) else []


def _copy(shape: Any) -> Any:
    if isinstance(shape, list):
        return [_copy(s) for s in shape]
    if isinstance(shape, dict):
        return {k: _copy(v) for k, v in shape.items()}
    return None


def get(value: Any, path: list[Any]) -> Any:
    """What stands at ``path``, None where nothing does."""
    for key in path:
        if isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        elif isinstance(value, dict):
            value = value.get(str(key))
        else:
            return None
    return value


def _is_tensor(value: Any) -> bool:
    """Whether this is a tensor object, not a container (whose ``type`` would be a gradient)."""
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def put(slots: Any, path: list[Any], value: Any) -> None:
    """Set ``slots[path[0]][path[1]]... = value``, growing lists and making containers where needed."""
    here: Any = slots
    for i, key in enumerate(path):
        last = i == len(path) - 1
        if isinstance(here, list):
            if not isinstance(key, int):
                return
            here.extend([None] * (key + 1 - len(here)))
        elif isinstance(here, dict):
            key = str(key)
            here.setdefault(key, None)
        if last:
            here[key] = value
            return
        if not isinstance(here[key], (list, dict)) or _is_tensor(here[key]):
            here[key] = [] if isinstance(path[i + 1], int) else {}
        here = here[key]
