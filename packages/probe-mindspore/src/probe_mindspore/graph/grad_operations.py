"""The gradients of parameters that a graph takes itself: what its `grad` or `GradOperation` gave back.

A hook on the parameter would be part of the graph as well, but MindSpore calls it once for each branch and loop in
which the parameter stands, with a part of the gradient, and fails where none comes (2.7.0 and 2.10.0). What the
operation gives back is the whole gradient, and what the run goes on with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import define, field
from mindspore import Parameter, Tensor, nn
from mindspore._c_expression import GradOperation_
from mindspore.ops import functional as F
from mindspore.ops.primitive import constexpr
from probe_runtime.collect import sheltered
from probe_runtime.patching import Function, attribute

from probe_mindspore.patching.compile_hook import parser

from .host_callback import FIRST
from .routes import Route
from .value_layouts import is_fixed

__all__ = ["watched_grads"]

_at_compile_time: Callable[[Callable[..., Any]], Callable[..., Any]] = constexpr(check=False)
_NAME = "probed"  # of an operation in our own code, which is left as it is


@define(eq=False)
class _KnownParameters:
    """What is known of the parameters in the graph that is compiled now.

    keys: the number of each parameter that is told, by its id. unknown: called for an operation whose parameters
    are not known. lists: the parameters that the source names together. near: by the operation's number, those
    that stand beside it under the name that MindSpore's own code gives them.
    """

    keys: Mapping[int, int]
    unknown: Callable[[], None]
    lists: dict[tuple[int, ...], tuple[Any, ...]] = field(factory=dict)
    near: list[tuple[Any, ...]] = field(factory=list)

    def number(self, namespace: Any) -> int:
        """The number of an operation that stands in this namespace."""
        try:
            found = namespace["weights"]
        except Exception:  # the namespace's own word for "there is none"
            found = ()
        self.near.append(_parameters(found))
        return len(self.near) - 1

    def meet(self, value: Any) -> None:
        """Look for lists of parameters in what a name in the source stands for."""
        if isinstance(value, nn.Cell):
            for one in vars(value).values():
                self._list(one)
        else:
            self._list(value)

    def _list(self, value: Any) -> None:
        found = _parameters(value)
        if any(id(p) in self.keys for p in found):
            self.lists[tuple(map(id, found))] = found

    def found(self, number: int, shapes: Sequence[Sequence[int]], dtypes: Sequence[Any]) -> tuple[int, ...]:
        """The numbers of the parameters that gradients with these shapes are of; 0 for none that is told."""
        wanted = [(tuple(s), str(d)) for s, d in zip(shapes, dtypes, strict=True)]
        near = self.near[number] if number >= 0 else ()
        fitting = [found for found in (near, *self.lists.values()) if list(map(_shape_and_dtype, found)) == wanted]
        if not fitting or (fitting[0] is not near and len(fitting) > 1):
            self.unknown()
            return (0,) * len(wanted)
        return tuple(self.keys.get(id(p), 0) for p in fitting[0])


def _parameters(value: Any) -> tuple[Any, ...]:
    """The parameters in a list of nothing else."""
    found = (value,) if isinstance(value, Parameter) else value
    if not isinstance(found, (tuple, list)):
        return ()
    return tuple(found) if all(isinstance(p, Parameter) for p in found) else ()


def _shape_and_dtype(parameter: Any) -> tuple[tuple[int, ...], str]:
    return tuple(parameter.shape), str(parameter.dtype)


_now: list[_KnownParameters] = []


@_at_compile_time
def _keys(number: Any, shapes: Any, dtypes: Any) -> Any:
    return _now[-1].found(number, shapes, dtypes) if _now else (0,) * len(shapes)


@_at_compile_time
def _unknown() -> int:
    for compilation in _now[-1:]:
        compilation.unknown()
    return 0


def _send(give: Any, number: int, gradients: Any) -> Any:
    """Inside the compiler: give each gradient to the host, with the number of its parameter."""
    if isinstance(gradients, Tensor):
        gradients = (gradients,)
    shapes: Any = ()
    dtypes: Any = ()
    for one in gradients:
        if not isinstance(one, Tensor) or not is_fixed(
            one
        ):  # a sparse one, or one whose shape only the run knows
            return _unknown()
        shapes = (*shapes, F.shape(one))
        dtypes = (*dtypes, F.dtype(one))
    keys = _keys(number, shapes, dtypes)
    for i in range(len(gradients)):
        if keys[i] != 0:
            give(gradients[i], FIRST, keys[i], 0)
    return 0


def _sending(
    give: Any, number: int, probed: Any, has_aux: bool, get_value: bool, by_place: bool, all_too: bool = False
) -> Callable[..., Any]:
    """An operation for `get_by_list` that tells what it gives back. by_place: it wants the places of inputs."""

    def part(out: Any) -> Any:
        if get_value:
            out = out[1]
        elif has_aux:
            out = out[0]
        return out

    def of_parameters(fn, weights):  # type: ignore[no-untyped-def]
        def run(*args):  # type: ignore[no-untyped-def]
            out = probed(fn, weights)(*args)
            _send(give, number, part(out))
            return out

        return run

    def of_both(fn, weights, places):  # type: ignore[no-untyped-def]
        def run(*args):  # type: ignore[no-untyped-def]
            out = probed(fn, weights, places)(*args)
            _send(give, number, part(out)[1])
            return out

        return run

    def of_all(fn, weights):  # type: ignore[no-untyped-def]
        def run(*args):  # type: ignore[no-untyped-def]
            out = probed(fn, weights)(*args)
            _send(give, number, part(out)[1])
            return out

        return run

    if by_place:
        return of_both
    return of_all if all_too else of_parameters


def _flag(operation: Any, name: str) -> bool:
    return bool(getattr(operation, name, False))


def _replaced(give: Any, number: int, operation: Any) -> Any:
    if not _flag(operation, "get_by_list") or _flag(operation, "return_ids"):
        return operation
    return _sending(
        give,
        number,
        operation,
        _flag(operation, "has_aux"),
        _flag(operation, "get_value"),
        _flag(operation, "get_by_position"),
        _flag(operation, "get_all"),
    )


def _maker(give: Any, probed: Any) -> Callable[..., Any]:
    """For `grad` and `value_and_grad` that are called inside the graph, which make their operation there."""

    def get_grad_op(get_by_list, get_by_position, has_aux, get_value, return_ids, *rest):  # type: ignore[no-untyped-def]
        made = probed(get_by_list, get_by_position, has_aux, get_value, return_ids, *rest)
        if not get_by_list or return_ids:
            return made
        return _sending(give, -1, made, has_aux, get_value, get_by_position)

    return get_grad_op


@contextmanager
def watched_grads(keys: Mapping[int, int], route: Route, unknown: Callable[[], None]) -> Iterator[None]:
    """While open, what is compiled tells the gradients of these parameters (number by id) wherever it takes them.

    unknown: called where it is not known which parameters an operation's gradients are of.
    """
    source = parser()
    if source is None or not keys:
        yield
        return
    give = route.parameter
    compilation = _KnownParameters(keys, unknown)

    def resolving(original: Function) -> Function:
        def resolve_symbol(namespace: Any, symbol: Any) -> Any:
            value = original(namespace, symbol)
            if symbol == _NAME:
                return value
            if isinstance(value, GradOperation_):
                return _replaced(give, compilation.number(namespace), value)
            if symbol == "_get_grad_op":
                return _maker(give, value)
            compilation.meet(value)
            return value

        return resolve_symbol

    place = attribute(source, "resolve_symbol", sheltered("a compilation", resolving))
    _now.append(compilation)
    place.put()
    try:
        yield
    finally:
        place.restore()
        _now.remove(compilation)
