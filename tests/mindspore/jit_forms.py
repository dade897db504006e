"""Ways to call a jitted function, and what each argument's gradient is by means that have no jit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from gradient_nets import values
from mindspore import Parameter, Tensor, nn, ops

Args = tuple[tuple[Any, ...], dict[str, Any]]
Path = tuple[Any, ...]


def product(c, x, k=None, flag=True):
    if flag:
        return ops.sin(x) * c * c
    return ops.sin(x) + c


def several(*all_of_them):
    return all_of_them[0] * all_of_them[1] * 2 + ops.exp(all_of_them[2])


def nested(pair, x):
    return pair[0] * ops.sin(x) + pair[1] * pair[1]


def named(x, **others):
    return x * others["a"] + ops.sin(others["b"])


WEIGHT = Parameter(values(2, 4, seed=5), name="weight")
FROZEN = Parameter(values(2, 4, seed=6), name="frozen", requires_grad=False)
CONSTANT = values(2, 4, seed=7)
WHOLE = Tensor(np.arange(1, 9).reshape(2, 4), ms.int32)

# MindSpore 2.10 itself, without Probe: a jitted function that is called once more, with other arguments that need
# gradients than before, or with a tuple and a tensor that do, has gradients of zero from the second time on. So each
# of these forms is jitted by itself.
#: name -> (function, its arguments made of h, the places that take a gradient, those that take none)
FORMS: dict[str, tuple[Callable[..., Any], Callable[[Tensor], Args], list[Path], list[Path]]] = {
    "number, tensor": (product, lambda h: ((2.0, h), {}), [(1,)], [(0,)]),
    "constant, tensor": (product, lambda h: ((CONSTANT, h), {}), [(1,)], [(0,)]),
    "tensor, constant": (product, lambda h: ((h, CONSTANT), {}), [(0,)], [(1,)]),
    "integers, tensor": (product, lambda h: ((WHOLE, h), {}), [(1,)], [(0,)]),
    "stopped, tensor": (product, lambda h: ((ops.stop_gradient(h), h), {}), [(1,)], [(0,)]),
    "keywords": (product, lambda h: ((), {"x": h, "c": CONSTANT}), [("x",)], [("c",)]),
    "keywords turned round": (product, lambda h: ((), {"x": h * 2, "c": h * 3}), [("x",), ("c",)], []),
    "None and a flag": (product, lambda h: ((CONSTANT, h, None, False), {}), [(1,)], [(0,), (2,), (3,)]),
    "an unused tensor": (product, lambda h: ((CONSTANT, h), {"k": CONSTANT}), [(1,)], [(0,), ("k",)]),
    "a weight": (product, lambda h: ((WEIGHT, h), {}), [(0,), (1,)], []),
    "a frozen weight": (product, lambda h: ((FROZEN, h), {}), [(1,)], [(0,)]),
    "any number of them": (several, lambda h: ((CONSTANT, h, CONSTANT), {}), [(1,)], [(0,), (2,)]),
    "the last of many": (several, lambda h: ((CONSTANT, CONSTANT, h), {}), [(2,)], [(0,), (1,)]),
    "a tuple, a constant": (nested, lambda h: (((h * 2, h * 3), CONSTANT), {}), [(0, 0), (0, 1)], [(1,)]),
    "others by name": (named, lambda h: ((CONSTANT,), {"b": h, "a": CONSTANT}), [("b",)], [(0,), ("a",)]),
}  # fmt: skip


def _at(args: Args, path: Path) -> Any:
    value: Any = args[1] if isinstance(path[0], str) else args[0]
    for key in path:
        value = value[key]
    return value


def _with(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: _with(value[path[0]], path[1:], new)}
    return tuple(_with(v, path[1:], new) if i == path[0] else v for i, v in enumerate(value))


def truth(function: Callable[..., Any], args: Args, path: Path) -> np.ndarray:
    """The gradient of the sum of what the function gives, with respect to one argument: no jit, and that alone."""
    positional, keywords = args
    named = isinstance(path[0], str)

    def of_one(z: Tensor) -> Tensor:
        a = positional if named else _with(positional, path, z)
        k = _with(keywords, path, z) if named else keywords
        return function(*a, **k).sum()

    return ms.grad(of_one)(Tensor(_at(args, path).asnumpy())).asnumpy()


def slot(function: Callable[..., Any], args: Args, path: Path) -> Path:
    """Where a backward record has it: jit puts keywords where the signature has them, those of ``**`` at the end."""
    if not isinstance(path[0], str):
        return path
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    if path[0] in names:
        return (names.index(path[0]), *path[1:])
    rest = [name for name in args[1] if name not in names]
    return (len(names) + rest.index(path[0]), *path[1:])


class Masked(nn.Cell):  # type: ignore[misc]
    """A jitted Cell with an argument before the one that matters."""

    def __init__(self) -> None:
        super().__init__()
        self.d = nn.Dense(4, 4)

    @ms.jit
    def construct(self, mask, x):  # type: ignore[no-untyped-def]
        return self.d(x) * mask


class Around(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.masked = Masked()

    def construct(self, mask: Tensor, x: Tensor) -> Tensor:
        return self.masked(mask, x * 1).sum()
