"""Another observer of the same MindSpore run, which knows nothing of Probe: copies, hooks and replays of its own.

Every call of a Cell is seen by a stand-in for `nn.Cell.__call__`, the whole gradient of an output by a hook on
that tensor. What a call contributed to the gradients of its inputs is found by calling it again, alone, on copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import mindspore as ms
import numpy as np
from attrs import define, field
from mindspore import Tensor, nn, ops

__all__ = ["Path", "Place", "Seen", "contributions", "listed", "separated", "tensors", "witnessed"]

Path = tuple[str, ...]
Array = Any
_FLOATS = (ms.float32, ms.float16)


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


def listed(out: Any, *, back: bool = False) -> Any:
    """What a call returned as the list, or the object, that a record holds under ``output``.

    back: as the list that its backward record has under ``input``.
    """
    if isinstance(out, dict) and not back:
        return out
    return list(out) if isinstance(out, list | tuple) else [out]


def array(t: Tensor) -> Array:
    """A copy of the numbers; of bfloat16 as float32."""
    return (t.float() if t.dtype == ms.bfloat16 else t).asnumpy().copy()


@define
class Seen:
    """One call of a Cell: copies of what it was given and gave, and the gradients of its outputs and its inputs.

    Each is that of the whole tensor, from all who use it.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    gave: dict[Path, Array] = field(factory=dict)
    grads: dict[Path, Array] = field(factory=dict)
    wholes: dict[Path, Array] = field(factory=dict)

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
        for path, t in tensors(listed(out, back=True)):
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
def _standing_in(model: nn.Cell, made: Callable[[str, Callable[..., Any], Any, Any], Any]) -> Iterator[None]:
    """Let ``made(name as records have it, the call itself, args, kwargs)`` make every call of a Cell of the model."""
    names = {id(cell): name for name, cell in reversed(list(model.cells_and_names())) if name}
    counts: dict[str, int] = {}
    original = nn.Cell.__call__

    def call(cell: nn.Cell, *args: Any, **kwargs: Any) -> Any:
        name = names.get(id(cell))
        if name is None:
            return original(cell, *args, **kwargs)
        key = f"Cell.{name}.{type(cell).__name__}.forward"
        number = counts[key] = counts.get(key, -1) + 1
        return made(f"{key}.{number}", lambda *a, **k: original(cell, *a, **k), args, kwargs)

    nn.Cell.__call__ = call
    try:
        yield
    finally:
        nn.Cell.__call__ = original


@contextmanager
def witnessed(model: nn.Cell) -> Iterator[dict[str, Seen]]:
    """See every call of a Cell of the model; by the names that records have."""
    calls: dict[str, Seen] = {}

    def came(found: dict[Path, Array], path: Path) -> Callable[[Tensor], None]:
        def hook(g: Tensor) -> None:
            found[path] = array(g)

        return hook

    def call(key: str, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        copies: dict[int, Tensor] = {}
        seen = calls[key] = Seen(_copied(args, copies), _copied(kwargs, copies))
        for path, t in tensors([*args, *kwargs.values()]):
            if t.dtype in _FLOATS:
                with suppress(RuntimeError):  # it takes no gradient
                    t.register_hook(came(seen.wholes, path))
        out = run(*args, **kwargs)
        for path, t in tensors(listed(out)):
            seen.gave["output", *path] = array(t)
        for path, t in tensors(listed(out, back=True)):
            if t.dtype in _FLOATS:
                t.register_hook(came(seen.grads, path))
        return out

    with _standing_in(model, call):
        yield calls


@define
class Place:
    """One place of what a call is given or returns, and what the run sends back there.

    share: what comes there, and nowhere else.
    alone: whether the call returns no other tensor.
    returned: of an input: the places in which it is returned; of an output: those in which the same tensor is.
    given: of an output: the places in which the same tensor is an input.
    """

    alone: bool
    returned: list[Path]
    given: list[Path]
    share: Array = None


def separated(model: nn.Cell, loss: Callable[[], Tensor]) -> dict[str, dict[Path, Place]]:
    """The places of each call of a Cell in ``loss``: (side, *slot) as backward records have them -> what is there.

    A tensor of zeros is added in each place, and the loss is differentiated by these.
    """
    calls: dict[str, dict[Path, Place]] = {}
    places: list[Place] = []
    zeros: list[Tensor] = []

    def looked_at(key: str, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        found = calls[key] = {}
        given = [(path, t) for path, t in tensors([*args, *kwargs.values()]) if t.dtype in _FLOATS]
        noted = [(path, t, Place(False, [], [])) for path, t in given]
        for path, t, place in noted:
            found["output", *path] = place
            places.append(place)
            zeros.append(ops.zeros_like(t))
        out = run(*args, **kwargs)
        made = [(path, t) for path, t in tensors(listed(out, back=True)) if t.dtype in _FLOATS]
        for path, t in made:
            place = Place(False, [], [mine for mine, other in given if other is t])
            noted.append((path, t, place))
            found["input", *path] = place
            places.append(place)
            zeros.append(ops.zeros_like(t))
        for _, t, place in noted:
            place.alone = len({id(other) for _, other in made}) < 2
            place.returned = [mine for mine, other in made if other is t]
        return out

    with _standing_in(model, looked_at):
        loss()

    def shifted(*zeros: Tensor) -> Tensor:
        left = iter(zeros)

        def shift(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value + next(left) if value.dtype in _FLOATS else value
            if isinstance(value, list | tuple):
                return type(value)([shift(item) for item in value])
            return {key: shift(item) for key, item in value.items()} if isinstance(value, dict) else value

        def call(_: str, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            args, kwargs = shift(args), shift(kwargs)
            return shift(run(*args, **kwargs))

        with _standing_in(model, call):
            return loss()

    found = ms.grad(shifted, tuple(range(len(zeros))))(*zeros) if zeros else ()
    for place, g in zip(places, found if isinstance(found, tuple) else (found,), strict=True):
        place.share = array(g)
    return calls


def same(a: Array, b: Array, digits: float = 1e-5) -> bool:
    """Whether two arrays are equal but for the order of sums, in units of the largest element."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        return False
    scale = max(float(np.abs(b).max(initial=0.0)), 1e-12)
    return bool((np.abs(a - b) <= digits * scale).all())
