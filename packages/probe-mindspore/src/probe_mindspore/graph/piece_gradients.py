"""Read the gradients inside a jitted function or Cell (a piece) that PyNative differentiates.

MindSpore compiles such a piece's backward pass by itself, and nothing in it can be read. So Probe compiles a graph of
its own that takes the piece's gradients, and evaluates a copy of it once the gradients of the piece's outputs have
arrived.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mindspore as ms
import numpy as np
from attrs import define, evolve, field, frozen
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops import functional as F
from probe_runtime.collect import guarded

from probe_mindspore.hooks import autograd
from probe_mindspore.hooks.uncompiled_hooks import UncompiledHooks
from probe_mindspore.patching.compile_hook import API
from probe_mindspore.tensors.tensor_view import TensorView, tensors_in, view_of

from .copied_graph import CopiedGraph, Outcome
from .search import UntappableError

#: Why the gradients inside a jitted piece have no records.
UNCALLED = (
    "PyNative takes the gradients of this jitted piece, and a copy cannot call it: it is a method of an object that is "
    "no Cell, or got keywords that its signature does not name"
)


class UndifferentiatedError(UntappableError):
    """Report that the gradients inside a piece cannot be read, though its values can."""


class _CompiledError(Exception):
    """Carry a compiled graph's arguments back to the code that had it compiled, instead of running the graph."""


@frozen
class Called:
    """Describe a call of a jitted piece.

    key: the key of its graph.
    what: the Cell or function; None for a method of another object.
    arguments: the arguments, by position.
    """

    key: Any
    what: Any
    arguments: tuple[Any, ...]


def compiled(called: Called, out: Any, parameters: Sequence[Any]) -> tuple[Any, ...]:
    """Compile the graph that takes the gradients of a piece, without running it. Return the inputs for it.

    out: what the piece returned.
    parameters: the Parameters that the piece uses.
    """
    what = called.what
    taken = tuple(any(map(autograd.takes_gradient, tensors_in(one))) for one in called.arguments)
    makers = tuple(map(_maker, called.arguments))
    weights = ms.ParameterTuple([p for p in parameters if p.requires_grad])
    by_list = bool(weights)
    probed = ops.GradOperation(get_all=any(taken), get_by_list=by_list, sens_param=True)

    def piece(*args):  # type: ignore[no-untyped-def]
        given = ()  # no annotation: the compiler does not read it
        for i in range(len(args)):
            one = args[i]
            if not taken[i]:
                one = F.stop_gradient(one)
            given = (*given, makers[i](one))  # type: ignore[assignment]
        return what(*given)

    def gradients(sens, *args):  # type: ignore[no-untyped-def]
        if by_list:
            return probed(piece, weights)(*args, sens)
        return probed(piece)(*args, sens)

    def stop(executor: Any, *inputs: Any) -> Any:
        if not inputs:
            return  # it fails
        raise _CompiledError(inputs)

    kind = API._PyNativeExecutor
    run, clear, before = kind.grad_jit, kind.clear_res, autograd.grad_enabled()
    try:
        # MindSpore clears what the run has recorded where a piece fails.
        kind.grad_jit = kind.clear_res = stop
        autograd.enable_grad(False)
        plain = map(_plain, called.arguments)
        arguments = [_mutable(one) if takes else one for one, takes in zip(plain, taken, strict=True)]
        _JITTED.setdefault((called.key, taken), ms.jit(gradients))(_mutable(_zeros(out)), *arguments)
    except _CompiledError as e:
        return tuple(e.args[0])
    finally:
        autograd.enable_grad(before)
        kind.grad_jit, kind.clear_res = run, clear
        if hasattr(kind, "set_jit_compile_status"):  # 2.7: else a piece that fails is for ever being compiled
            kind.set_jit_compile_status(API._pynative_executor, False, called.key)
    raise RuntimeError("MindSpore did not run what it compiled")


_JITTED: dict[Any, Any] = {}


@define(eq=False)
class PieceGradients:
    """Wait for the gradients of a piece's outputs, and evaluate its graph of gradients with them.

    graph: the graph of gradients.
    inputs: the inputs of that graph; the first is zeros in the shapes of the piece's outputs.
    own: name -> the earlier value of each Parameter that the piece wrote.
    tokens: the answers to the messages that began the piece's calls.
    outcome: notes the Cells whose gradients are computed.
    """

    graph: CopiedGraph
    inputs: list[Any]
    own: dict[str, TensorView]
    tokens: Sequence[int]
    outcome: Outcome
    _hooked: set[int] = field(factory=set)
    _arrived: dict[int, TensorView] = field(factory=dict)

    def watch(self, out: Any, hooks: UncompiledHooks) -> None:
        """Hook the piece's outputs, to wait for their gradients.

        hooks: keeps the hooks out of other pieces that get these outputs.
        """
        for i, t in enumerate(tensors_in(out)):
            hook = guarded("a compiled graph", "the gradient of its output", partial(self._came, i))
            if autograd.takes_gradient(t) and hooks.add(partial(autograd.hook_tensor, t, hook)) is not None:
                self._hooked.add(i)

    def _came(self, i: int, gradient: Any) -> None:
        if gradient is None:
            return
        if i in self._arrived:
            self.flush()
        view = view_of(gradient)
        self._arrived[i] = evolve(view, data=None if view.data is None else np.array(view.data))
        if len(self._arrived) == len(self._hooked):
            self.flush()

    def flush(self) -> None:
        """Evaluate the graph of gradients with the gradients that have arrived, and record what it gives."""
        if self._arrived:
            numbers = itertools.count()

            def arrived(one: Any) -> Any:
                if isinstance(one, list | tuple):
                    return tuple(map(arrived, one))
                return self._arrived.get(next(numbers), one) if isinstance(one, Tensor) else one

            inputs = [arrived(self.inputs[0]), *self.inputs[1:]]
            self._arrived = {}
            self.graph.gradients(inputs, self.own, self.tokens, self.outcome)


def _maker(value: Any) -> Callable[[Any], Any]:
    """Return a function that makes ``value`` again from `_plain(value)`. For the compiler to read."""
    if isinstance(value, nn.Cell):
        return lambda one: value
    if isinstance(value, dict):
        keys, items = tuple(value), _maker(tuple(value.values()))
        return lambda one: F.make_dict(keys, items(one))
    if not isinstance(value, list | tuple):
        return lambda one: one
    makers, is_list = tuple(map(_maker, value)), isinstance(value, list)

    def nest(one):  # type: ignore[no-untyped-def]
        made = ()
        for i in range(len(makers)):
            made = (*made, makers[i](one[i]))  # type: ignore[assignment]
        return list(made) if is_list else made

    return nest


def _plain(value: Any) -> Any:
    """Return an argument as a nest of tensors with the same elements, without Cells and dicts.

    Gradients of Cells and dicts cannot be asked for. The tensors are new objects, because MindSpore 2.7 compiles the
    hooks of a tensor into the graph that gets it.
    """
    if isinstance(value, dict | list | tuple):
        items = map(_plain, value.values() if isinstance(value, dict) else value)
        nest = (list if isinstance(value, list) else tuple)(items)
        return _mutable(nest) if getattr(value, "__ms_mutable__", False) else nest
    if isinstance(value, nn.Cell):
        return 0
    return F.stop_gradient(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _mutable(value: Any) -> Any:
    """Return a nest that is no constant of the graph that gets it."""
    return ms.mutable(value) if isinstance(value, list | tuple) else value


def _zeros(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_zeros, value))
    return ms.ops.zeros(value.shape, value.dtype) if isinstance(value, Tensor) else value
