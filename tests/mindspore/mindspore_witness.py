"""Another observer of the same MindSpore run, which knows nothing of Probe: copies, hooks and replays of its own.

Every call of a Cell is seen by a stand-in for `nn.Cell.__call__`, the whole gradient of an output by a hook on
that tensor. What a call contributed to the gradients of its inputs is found by calling it again, alone, on copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import numpy as np
from attrs import define, field
from mindspore import Tensor, nn, ops

__all__ = ["Path", "Seen", "contributions", "listed", "tensors", "witnessed"]

Path = tuple[str, ...]
Array = Any


def tensors(value: Any, path: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """Every tensor in a value, with its place as the specification of dump.json counts it."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from tensors(item, (*path, str(i)))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors(item, (*path, str(key)))


def listed(out: Any) -> Any:
    """What a call returned as the list, or the object, that a record holds under ``output``."""
    return out if isinstance(out, dict) else list(out) if isinstance(out, list | tuple) else [out]


def array(t: Tensor) -> Array:
    """A copy of the numbers; of bfloat16 as float32."""
    return (t.float() if t.dtype == ms.bfloat16 else t).asnumpy().copy()


@define
class Seen:
    """One call of a Cell: copies of what it was given and gave, and the gradients of its outputs."""

    again: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    gave: dict[Path, Array] = field(factory=dict)
    grads: dict[Path, Array] = field(factory=dict)

    @property
    def slots(self) -> list[Any]:
        """The arguments as a backward record counts them."""
        return [*self.args, *self.kwargs.values()]


def _rebuilt(value: Any, made: dict[int, Tensor]) -> Any:
    """The value with the tensors of `made` in place of its own."""
    if isinstance(value, Tensor):
        return made[id(value)]
    if isinstance(value, list | tuple):
        return type(value)(_rebuilt(item, made) for item in value)
    if isinstance(value, dict):
        return {key: _rebuilt(item, made) for key, item in value.items()}
    return value


def _copied(value: Any, copies: dict[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        if id(value) not in copies:
            copies[id(value)] = Tensor(value.asnumpy().copy(), value.dtype)
        return copies[id(value)]
    if isinstance(value, list | tuple):
        return type(value)(_copied(item, copies) for item in value)
    if isinstance(value, dict):
        return {key: _copied(item, copies) for key, item in value.items()}
    return value


def contributions(
    again: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], grads: dict[Path, Array]
) -> dict[Path, Array]:
    """What a call sends back to each of its inputs, by their places among positional arguments and keywords.

    grads: the whole gradient of each output, by place. One output may be made of another inside the call, so
    they are not summed up: each is replaced by the whole one as it passes.
    """
    slots = [*args, *kwargs.values()]
    given = {id(t): t for _, t in tensors(slots) if t.dtype in (ms.float32, ms.float16, ms.float64)}
    fixed = {id(t): t for _, t in tensors(slots)}
    passed: dict[int, list[Path]] = {}

    def alone(*floats: Tensor) -> Any:
        made = {**fixed, **dict(zip(given, [f * 1 for f in floats], strict=True))}
        out = again(*_rebuilt(args, made), **_rebuilt(kwargs, made))
        ends = []
        for path, t in tensors(listed(out)):
            if path in grads:
                source = next((key for key, mine in made.items() if mine is t), None)
                if source is not None:
                    passed.setdefault(source, []).append(path)
                    continue
                whole = Tensor(grads[path], t.dtype)
                t.register_hook(lambda _, whole=whole: whole)
                ends.append((t * 0.0).sum().astype(ms.float32))
        return sum(ends, Tensor(0.0, ms.float32))

    if not given:
        return {}
    found = ops.GradOperation(get_all=True)(alone)(*given.values())
    shares = {key: array(g) for key, g in zip(given, found, strict=True)}
    for key, paths in passed.items():
        if not shares[key].any():  # only passed on: the whole gradient
            shares[key] = grads[paths[0]]
    return {path: shares[id(t)] for path, t in tensors(slots) if id(t) in shares}


@contextmanager
def witnessed(model: nn.Cell) -> Iterator[dict[str, Seen]]:
    """See every call of a Cell of the model; by the names that records have."""
    names = {id(cell): name for name, cell in reversed(list(model.cells_and_names())) if name}
    calls: dict[str, Seen] = {}
    counts: dict[str, int] = {}
    original = nn.Cell.__call__

    def came(seen: Seen, path: Path) -> Callable[[Tensor], None]:
        def hook(g: Tensor) -> None:
            seen.grads[path] = array(g)

        return hook

    def call(cell: nn.Cell, *args: Any, **kwargs: Any) -> Any:
        name = names.get(id(cell))
        if name is None:
            return original(cell, *args, **kwargs)
        key = f"Cell.{name}.{type(cell).__name__}.forward"
        number = counts[key] = counts.get(key, -1) + 1
        copies: dict[int, Tensor] = {}
        seen = Seen(lambda *a, **k: original(cell, *a, **k), _copied(args, copies), _copied(kwargs, copies))
        calls[f"{key}.{number}"] = seen
        out = original(cell, *args, **kwargs)
        for path, t in tensors(listed(out)):
            seen.gave["output", *path] = array(t)
            if t.dtype in (ms.float32, ms.float16):
                t.register_hook(came(seen, path))
        return out

    nn.Cell.__call__ = call
    try:
        yield calls
    finally:
        nn.Cell.__call__ = original


def same(a: Array, b: Array, digits: float = 1e-5) -> bool:
    """Whether two arrays are equal but for the order of sums, in units of the largest element."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        return False
    scale = max(float(np.abs(b).max(initial=0.0)), 1e-12)
    return bool((np.abs(a - b) <= digits * scale).all())
