"""What MindSpore's PyNative autograd lets Python see, behind a few plain functions.

Since 2.8 a tensor knows the node that made it, a node knows its edges and takes hooks, as in torch. 2.7 shows
nothing but hooks on tensors. Only this file knows the names: they begin with an underscore and may move.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import mindspore
from attrs import define, field
from mindspore._c_expression import typing
from mindspore.common.api import _pynative_executor
from probe_runtime.collect import guarded

__all__ = [
    "GRAPH",
    "LEAF",
    "Handle",
    "add",
    "backward_pass",
    "grad_flag",
    "hook_node",
    "hook_tensor",
    "in_backward",
    "is_graph",
    "key",
    "recording",
    "sequence",
    "takes_gradient",
]

_Tensor: Any = mindspore._c_expression.TensorPy
_Node: Any = getattr(mindspore._c_expression, "BackwardNodePy", None)
_executor: Any = _pynative_executor
_DIFFERENTIABLE = (typing.Float, typing.BFloat, typing.Complex)
#: Whether the graph can be walked from Python.
GRAPH = (
    all(hasattr(_Tensor, name) for name in ("_grad_node", "_output_index"))
    and hasattr(_executor, "get_current_autodiff_engine_id")
    and (_Node is None or hasattr(_Node, "next_functions"))
)
#: The sequence number of a node that stands for a leaf tensor.
LEAF = (1 << 64) - 1

recording: Callable[[], bool] = _executor.requires_grad
#: Whether somebody has begun to record gradients in this thread, also where it is off for a moment.
grad_flag: Callable[[], bool] = _executor.grad_flag


def _no_pass() -> int:
    return -1


#: The number of the backward pass that runs now; -1 outside of one, and always on 2.7.
backward_pass: Callable[[], int] = _executor.get_current_autodiff_engine_id if GRAPH else _no_pass


def in_backward() -> bool:
    """Whether a backward pass is running. On 2.7 nothing tells it: False."""
    return backward_pass() != -1


def takes_gradient(t: Any) -> bool:
    """Whether a gradient may arrive for this tensor in the graph that is being recorded."""
    if not isinstance(t.dtype, _DIFFERENTIABLE):  # mindtorch's is_floating_point knows no bfloat16
        return False  # an index made from a float has a node all the same
    if GRAPH:
        return t._grad_node is not None
    return bool(recording())


def key(node: Any) -> Any:
    """What a node is told by: each look at a tensor's node makes a new Python object."""
    unique = getattr(node, "_unique_id", None)
    if unique is not None:
        return unique()
    number = node._sequence_nr()
    return number if number != LEAF else node.name()


def is_graph(node: Any) -> bool:
    """Whether this node stands for a whole compiled graph (`mindspore.jit`)."""
    return "bprop_builder" in node.name()


class _SequenceTensor(threading.local):
    """A tensor of our own in each thread, whose views tell how far the graph has come."""

    def __init__(self) -> None:
        self.tensor = mindspore.Tensor([0.0], mindspore.float32)
        self.tensor.requires_grad_()


_sequence_tensor: Any = None


def sequence() -> int:
    """The number of a node made right now: what the run makes later has a higher one.

    The node belongs to a view of a private tensor; it is joined to nothing and is gone when this returns.
    """
    global _sequence_tensor
    if _sequence_tensor is None:
        _sequence_tensor = _SequenceTensor()
    node = _Tensor.view(_sequence_tensor.tensor, 1)._grad_node
    return LEAF if node is None else int(node._sequence_nr())


def add(a: Any, b: Any) -> Any:
    """a + b in a new tensor, outside the graph: gradients belong to the run and are never written to."""
    before = _executor.enable_grad()
    _executor.set_enable_grad(False)
    try:
        return _Tensor.__add__(a, b)
    finally:
        _executor.set_enable_grad(before)


@define
class Handle:
    """A hook that can be taken off, once, without a word to the jit cache.

    MindSpore's own ``remove`` counts up a number that is part of the key under which jit functions are
    compiled: after it each of them would be compiled again.
    """

    _off: Callable[[], None] | None = field(alias="off")

    def remove(self) -> None:
        off, self._off = self._off, None
        if off is not None:
            off()


def hook_node(node: Any, hook: Callable[[Any, Any], None]) -> Handle:
    """Call ``hook(gradients of the node's inputs, gradients of its outputs)`` when it has run in a pass."""
    handle = node.register_hook(guarded("a gradient", "its arrival at a node", hook))

    def off() -> None:
        hooks = handle.hook_dict_ref and handle.hook_dict_ref()
        if hooks is not None:
            hooks.pop(handle.handle_id, None)

    return Handle(off)


def hook_tensor(t: Any, hook: Callable[[Any], None]) -> Handle | None:
    """Call ``hook(the whole gradient of t)``, or ``hook(None)`` where a pass brought none.

    On a leaf tensor it stays from step to step until it is taken off. None: no gradient can come to ``t``. The hook is
    guarded by who gives it, unless it is one for the compiler to read.
    """
    try:
        number = _Tensor.register_hook(t, hook)
    except RuntimeError:  # "The tensor requires grad is false": nothing else tells it on 2.7
        return None
    return Handle(lambda: _Tensor.remove_hook(number))
