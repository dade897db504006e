"""Turn dropout off, by whatever route a model calls it, until undone."""

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import mindspore.ops.function.nn_func as nn_func
from mindspore import ops
from mindspore.nn.layer import basic
from probe_runtime.patching import Held, Place, place, replaced

_CELLS = ("Dropout", "DropoutExt", "Dropout1d", "Dropout2d", "Dropout2dExt", "Dropout3d")
_PRIMITIVES = ("Dropout", "Dropout2D", "Dropout3D")
_MINT = ("func_dropout_ext_op", "dropout2d_ext_op")


def no_dropout() -> Held:
    """Switch dropout off until ``undo`` of the result is called. Several may overlap; the last undo switches it on.

    The classes and functions that all others use are replaced, so ``from mindspore.ops import dropout`` and Cells made
    earlier are off too. Not reached: what is compiled already, a Primitive that was made earlier and is compiled later
    (GRAPH_MODE), and dropout inside fused kernels (flash attention).
    """
    places = _places()
    _holders.append(None)
    return replaced(places, _let_go)


def _places() -> list[Place]:
    cells = [cls for name in _CELLS if (cls := getattr(basic, name, None)) is not None]
    primitives = [getattr(ops, name) for name in _PRIMITIVES]
    owners = nn_func, ops.auto_generate
    functions = [(owner, name) for name in _MINT for owner in owners if hasattr(owner, name)]
    return [
        *(place(cls, "construct", _construct) for cls in cells),
        *(place(cls, "__call__", _call, cls) for cls in primitives),
        *(place(cls, "__init__", _init) for cls in primitives),
        *(place(owner, name, _nothing_dropped) for owner, name in functions),
    ]


_holders: list[None] = []
_meanwhile: list[Callable[[], None]] = []


def _let_go() -> None:
    """Restore the rate of Primitives made meanwhile, which MindSpore keeps and uses again for equal calls."""
    _holders.pop()
    while _meanwhile and not _holders:
        _meanwhile.pop()()


# A function that replaces a `construct`, or is called in one, is itself compiled: MindSpore reads its source, which
# must therefore be plain and not be hidden behind functools.wraps.


def _construct(original: Callable[..., Any]) -> Callable[..., Any]:
    return _of_input if "input" in inspect.signature(original).parameters else _of_x


def _of_x(self: Any, x: Any) -> Any:
    return x


def _of_input(self: Any, input: Any) -> Any:
    return input


def _same(input: Any, p: Any, training: Any, inplace: Any, seed: Any, offset: Any) -> Any:
    return input


def _nothing_dropped(original: Callable[..., Any]) -> Callable[..., Any]:
    return _same


def _init(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(self: Any, keep_prob: float = 0.5, *args: Any, **kwargs: Any) -> None:
        if not _holders:
            original(self, keep_prob, *args, **kwargs)
            return
        original(self, 1.0, *args, **kwargs)
        made = weakref.ref(self)

        def restore_primitive() -> None:
            primitive = made()
            if primitive is not None:
                original(primitive, keep_prob, *args, **kwargs)

        _meanwhile.append(restore_primitive)

    return init


def _call(original: Callable[..., Any], kind: type) -> Callable[..., Any]:
    keeping = kind(1.0)

    @functools.wraps(original)
    def call(self: Any, *args: Any) -> Any:
        return original(keeping if _holders else self, *args)

    return call
