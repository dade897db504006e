"""Walk over everything in a record: its tensors, its other values, and the containers that hold nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from probe_format.schema import is_tensor, path_text, tensors, walk
from probe_format.values import ValuePath, is_leaf

from probe_analysis.calls import GRADIENTS

#: The first key of a slot -> the role of what stands there.
_ROLES = {"input": "input", "output": "output"}
_ROLES |= {"input_args": "input", "input_kwargs": "kwarg", "parameters": "parameter"}


def place(keys: ValuePath, kind: str) -> dict[str, Any]:
    """Return the columns that say where a value stands.

    keys: its place in the record, as ``("input_args", 0)``.
    kind: of the record: ``api``, ``module``, ``parameters_grad``, ``optimizer_grad`` or ``debug``.
    """
    found: dict[str, Any] = {"slot": path_text(keys)}
    if kind == "debug":
        return {**found, "role": "saved", "path": path_text(keys)}
    if kind in GRADIENTS:
        return {**found, "role": "gradient", "path": path_text(keys[:1])}
    if keys[:1] == ("recompute",):
        found["recompute"] = True
        keys = keys[1:]
    elif keys[:1] == ("later_passes",) and len(keys) > 1 and isinstance(keys[1], int):
        found["backward_pass"] = keys[1] + 1
        keys = keys[2:]
    role = _ROLES.get(str(keys[0])) if keys else None
    return {**found, "role": role or "other", "path": path_text(keys[1:] if role else keys)}


def leaves(record: Any) -> Iterator[tuple[ValuePath, Any]]:
    """Yield every value below a record with its place, in document order.

    A part of the record that is empty (``"input_args": []``) is no value, an empty list among its arguments is one.
    """
    for path, node in walk(record, is_leaf):
        if len(path) > 1 or not isinstance(node, list | dict) or node:
            yield path, node
            if isinstance(node, dict) and not is_tensor(node):  # it may carry a tensor: torch's P2POp does
                yield from (((*path, *below), tensor) for below, tensor in tensors(node))
