"""Have a compiled graph send the gradients of parameters, which are read from the results of the `grad` or
`GradOperation` in it.

A hook on a parameter would be part of the graph as well, but MindSpore calls it once for each branch and loop that uses
the parameter, with a part of the gradient, and fails where there is none (2.7.0 and 2.10.0). The operation's result is
the complete gradient, and the one that the run uses.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mindspore import Tensor
from mindspore._c_expression import GradOperation_
from mindspore.ops import functional as F

from probe_mindspore.patching.compile_hook import resolved_names

from .flatten import at_compile_time, is_fixed
from .host_callback import FIRST
from .known_parameters import KnownParameters
from .routes import Route

Operation = Callable[..., Any]
_NAME = "probed"  # name of an operation in Probe's code, which is not replaced


_now: list[KnownParameters] = []


@at_compile_time
def _keys(number: Any, shapes: Any, dtypes: Any) -> Any:
    return _now[-1].found(number, shapes, dtypes) if _now else (0,) * len(shapes)


@at_compile_time
def _unknown() -> int:
    for compilation in _now[-1:]:
        compilation.unknown()
    return 0


def _send(give: Any, number: int, gradients: Any) -> Any:
    """Send each gradient to the host, with the number of its parameter. For the compiler to read."""
    if isinstance(gradients, Tensor):
        gradients = (gradients,)
    shapes: Any = ()
    dtypes: Any = ()
    for one in gradients:
        if not isinstance(one, Tensor) or not is_fixed(one):  # sparse, or only the run knows its shape
            return _unknown()
        shapes = (*shapes, F.shape(one))
        dtypes = (*dtypes, F.dtype(one))
    keys = _keys(number, shapes, dtypes)
    for i in range(len(gradients)):
        if keys[i] != 0:
            give(gradients[i], FIRST, keys[i], 0)
    return 0


def _sending(give: Any, number: int, probed: Any, has_aux: bool, get_value: bool, pairs: bool) -> Operation:
    """Return a ``get_by_list`` operation that also sends its results. pairs: whether it gives the inputs' as well."""

    def of(fn, *where):  # type: ignore[no-untyped-def]
        def run(*args):  # type: ignore[no-untyped-def]
            out = probed(fn, *where)(*args)
            found = out
            if get_value:
                found = out[1]
            elif has_aux:
                found = out[0]
            _send(give, number, found[1] if pairs else found)
            return out

        return run

    return of


def _flag(operation: Any, name: str) -> bool:
    return bool(getattr(operation, name, False))


def _replaced(give: Any, number: int, operation: Any) -> Any:
    if not _flag(operation, "get_by_list") or _flag(operation, "return_ids"):
        return operation
    has_aux, get_value = _flag(operation, "has_aux"), _flag(operation, "get_value")
    pairs = _flag(operation, "get_by_position") or _flag(operation, "get_all")
    return _sending(give, number, operation, has_aux, get_value, pairs)


def _maker(give: Any, probed: Any) -> Operation:
    """Wrap the function that makes the operation of a `grad` or `value_and_grad` called inside the graph."""

    def get_grad_op(get_by_list, get_by_position, has_aux, get_value, return_ids, *rest):  # type: ignore[no-untyped-def]
        made = probed(get_by_list, get_by_position, has_aux, get_value, return_ids, *rest)
        if not get_by_list or return_ids:
            return made
        return _sending(give, -1, made, has_aux, get_value, get_by_position)

    return get_grad_op


@contextmanager
def watched_grads(keys: Mapping[int, int], route: Route, unknown: Callable[[], None]) -> Iterator[None]:
    """Compile graphs that send the gradients of these parameters, while open.

    keys: id of each parameter -> its number, which is the message's ``extra``.
    route: sends the gradients.
    unknown: called where the parameters of an operation cannot be identified.
    """
    if not keys:
        yield
        return
    give = route.parameter
    compilation = KnownParameters(keys, unknown)

    def change(namespace: Any, symbol: Any, value: Any) -> Any:
        if symbol == _NAME:
            return value
        if isinstance(value, GradOperation_):
            return _replaced(give, compilation.number(namespace), value)
        if symbol == "_get_grad_op":
            return _maker(give, value)
        compilation.meet(value)
        return value

    _now.append(compilation)
    try:
        with resolved_names(change):
            yield
    finally:
        _now.remove(compilation)
