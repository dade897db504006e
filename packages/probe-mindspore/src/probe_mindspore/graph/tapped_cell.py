"""Replace a Cell's construct while it is compiled by one with taps: calls that send its values to Python (`tapped`).

Two taps send the arguments with the Cell's own parameters, and the result. Where gradients are wanted, a tap on each
tensor of the arguments and of the result that can have a gradient sends it.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import mindspore
from mindspore import Tensor, nn
from mindspore.ops import functional as F

from .flatten import at_compile_time, is_fixed, is_watched, parted
from .host_callback import FIRST
from .routes import Route

Construct = Callable[..., Any]
#: Ids of the Cells whose taps the compiler has read, the latest last.
compiled: dict[int, None] = {}


@at_compile_time
def _note(key: Any) -> int:
    compiled.pop(key, None)
    compiled[key] = None
    return 0


def _watch(call: Any, value: Any, token: Any, key: int, place: int) -> Any:
    """Return (``value`` with gradient taps on its tensors, the number of the next tensor). For the compiler to read."""
    if isinstance(value, Tensor):
        if not is_fixed(value) or not is_watched(value):
            return value, place + 1
        return call(value, token, key, place), place + 1
    if isinstance(value, dict):
        keys, values = parted(value)
        values, place = _watch_each(call, values, token, key, place)
        return F.make_dict(keys, values), place
    if isinstance(value, tuple):
        return _watch_each(call, value, token, key, place)
    if isinstance(value, list):
        items, place = _watch_each(call, value, token, key, place)
        return list(items), place
    return value, place


def _watch_each(call: Any, values: Any, token: Any, key: int, place: int) -> Any:
    items: Any = ()
    for one in values:
        one, place = _watch(call, one, token, key, place)
        items = (*items, one)
    return items, place


def _construct(original: Any, key: int, names: tuple[str, ...], route: Route, gradients: bool) -> Construct:
    enter, leave, of_input, of_output = route.enter, route.leave, route.of_input, route.of_output

    def construct(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        parameters = ()  # no annotation: the compiler does not read it
        for name in names:
            parameters = (*parameters, getattr(self, name))  # type: ignore[assignment]
        _note(key)
        token = enter((args, kwargs, parameters), FIRST, key, 0)
        if gradients:
            args, place = _watch(of_input, args, token, key, 0)
            kwargs, place = _watch(of_input, kwargs, token, key, place)
        out = original(*args, **kwargs)
        leave(out, token, key, 0)
        if gradients:
            out, place = _watch(of_output, out, token, key, 0)
        return out

    return construct


_PRE_HOOKS = "_lazy_forward_pre_hook"  # where a Cell keeps its forward pre-hooks; None where it has none
_HOOKS = ("_lazy_forward_hook", "_lazy_backward_pre_hook", "_lazy_backward_hook")


def is_hooked(cell: Any) -> bool:
    """Return whether the Cell has hooks of the user's that would not work the same around a tapped construct.

    In a graph MindSpore calls a forward hook once more with each place that calls the Cell (2.7.0 and 2.10.0), and
    passes hooks the arguments by the construct's own parameters.
    """
    return any(vars(cell).get(name) for name in _HOOKS)


class _Inner(nn.Cell):  # type: ignore[misc]
    """Stand in for a Cell that defines ``bprop``, or has forward pre-hooks, inside its tapped construct.

    It has the construct, bprop and pre-hooks as the user wrote them, and the user's own Cell has none meanwhile: the
    compiler uses a bprop in place of the gradients of all that its Cell does, taps included, and it passes pre-hooks
    the arguments by the construct's own parameters.
    """

    def __init__(self, cell: Any) -> None:
        super().__init__(auto_prefix=False)
        object.__setattr__(self, "_probed", cell)
        for name in ("construct", "bprop"):
            if getattr(cell, name, None) is not None:
                object.__setattr__(self, name, _method(cell, name))
        object.__setattr__(self, _PRE_HOOKS, vars(cell).get(_PRE_HOOKS))

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_probed"), name)


def _method(cell: Any, name: str) -> Any:
    """Return a Cell's construct or bprop as it was before @jit."""
    method = getattr(cell, name)
    if getattr(method, "__wrapped_by_jit__", False):
        return MethodType(inspect.unwrap(method.__func__), cell)
    return method


def _without_bprop(kind: type) -> type:
    """Return a subclass with the same names and without the bprop."""

    def absent(self: Any) -> Any:
        raise AttributeError("bprop")

    names = {"bprop": property(absent), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), names)


def _called(block, *args, **kwargs):  # type: ignore[no-untyped-def]
    return block(*args, **kwargs)


def not_recomputed(namespace: Any, symbol: Any, value: Any) -> Any:
    """Let the compiler find a plain call for `mindspore.recompute`: around taps it would never end (2.10.0)."""
    return _called if value is mindspore.recompute else value


@contextmanager
def without_recompute(cells: Iterable[Any]) -> Iterator[None]:
    """Undo Cells' `recompute()` while open: around taps, the compiler's pass for it may never end (2.10.0)."""
    before = [(vars(cell), vars(cell).get("_scope"), vars(cell).get("_func_graph_flags")) for cell in cells]
    for own, scope, flags in before:
        if scope is not None:
            own["_scope"] = scope.removeprefix("recompute_") or None
        if flags is not None:
            own["_func_graph_flags"] = {k: v for k, v in flags.items() if not k.endswith("recompute")}
    try:
        yield
    finally:
        for own, scope, flags in before:
            own |= {k: v for k, v in (("_scope", scope), ("_func_graph_flags", flags)) if v is not None}


@contextmanager
def tapped(cell: Any, names: tuple[str, ...], route: Route, gradients: bool) -> Iterator[None]:
    """Replace the Cell's construct by a tapped one while open. Undone also when the block raises.

    names: the attributes that hold the Cell's own parameters.
    route: sends the messages of the taps.
    gradients: whether gradients get taps too.
    """
    own, kind = vars(cell), type(cell)
    before = {name: own[name] for name in ("construct", "bprop", _PRE_HOOKS) if name in own}
    hooked = bool(own.get(_PRE_HOOKS))
    original: Any = _method(cell, "construct")
    if getattr(cell, "bprop", None) is not None or hooked:
        original = _Inner(cell)
    if getattr(cell, "bprop", None) is not None:
        before.pop("bprop", None) if "bprop" not in own else object.__delattr__(cell, "bprop")
        cell.__class__ = _without_bprop(kind)
    if hooked:
        object.__setattr__(cell, _PRE_HOOKS, None)
    construct = _construct(original, id(cell), names, route, gradients)
    object.__setattr__(cell, "construct", MethodType(construct, cell))
    try:
        yield
    finally:
        if type(cell) is not kind:
            cell.__class__ = kind
        if "construct" not in before:
            object.__delattr__(cell, "construct")
        for name, value in before.items():
            object.__setattr__(cell, name, value)
