"""Wrap what Python reaches of MindSpore's PyNative autograd: its state, nodes and edges, hooks, backward passes.

Since 2.8 a tensor has the node that made it, and a node has edges and takes hooks, as in torch. 2.7 has hooks on
tensors only. MindSpore's names for all this begin with an underscore and may change, so only this module uses them.
"""

import threading
from collections.abc import Callable
from typing import Any

import mindspore
from attrs import define, field
from mindspore._c_expression import typing
from mindspore.common.api import _pynative_executor
from probe_format.excerpts import unsignalled

_Tensor: Any = mindspore._c_expression.TensorPy
_Node: Any = getattr(mindspore._c_expression, "BackwardNodePy", None)
_executor: Any = getattr(_pynative_executor, "_executor", _pynative_executor)  # without the layer in Python
_DIFFERENTIABLE = (typing.Float, typing.BFloat, typing.Complex)
#: Whether the graph can be walked from Python.
GRAPH = (
    all(hasattr(_Tensor, name) for name in ("_grad_node", "_output_index"))
    and hasattr(_executor, "get_current_autodiff_engine_id")
    and (_Node is None or hasattr(_Node, "next_functions"))
)
#: The sequence number of a leaf tensor's node.
LEAF = (1 << 64) - 1

#: Whether gradients are recorded in this thread now.
recording: Callable[[], bool] = _executor.requires_grad
#: Whether recording of gradients has begun in this thread, even if it is switched off at the moment.
grad_flag: Callable[[], bool] = _executor.grad_flag

#: Drop the gradients whose recording an exception cut short: with them the next net that is differentiated fails
#: ("the index 7 is out of range of input num 7").
abandon: Callable[[], None] = _executor.clear_res
#: Return when all that was begun is computed. Raises what failed meanwhile.
wait: Callable[[], None] = _executor.sync
#: Whether gradients can be recorded: not under `mindspore._no_grad`.
grad_enabled: Callable[[], bool] = _executor.enable_grad
#: Switch the recording of gradients on or off.
enable_grad: Callable[[bool], None] = _executor.set_enable_grad


#: The number of the backward pass that runs now; -1 outside of one, and always on 2.7.
backward_pass: Callable[[], int] = _executor.get_current_autodiff_engine_id if GRAPH else lambda: -1


def is_differentiable(t: Any) -> bool:
    return isinstance(t._dtype, _DIFFERENTIABLE)


def takes_gradient(t: Any) -> bool:
    """Return whether a gradient may come for this tensor in the graph that is being recorded."""
    try:
        if GRAPH and t._grad_node is None:
            return False
        # An index made from a float has a node too. mindtorch's is_floating_point knows no bfloat16.
        return isinstance(t._dtype, _DIFFERENTIABLE) and (GRAPH or bool(recording()))
    except unsignalled(Exception):  # its computation failed, and each look at it raises that again
        return False


def key(node: Any) -> Any:
    """Return the identity of a node: MindSpore makes a new Python object each time a node is read."""
    try:
        return node._unique_id()
    except AttributeError:  # not every MindSpore has it
        number = node._sequence_nr()
        return number if number != LEAF else node.name()


def is_graph(node: Any) -> bool:
    """Return whether this node represents a compiled graph (`mindspore.jit`)."""
    return "bprop_builder" in node.name()


class _SequenceTensor(threading.local):
    """Hold a private tensor for each thread, whose views have the current sequence number."""

    def __init__(self) -> None:
        self.tensor = mindspore.Tensor([0.0], mindspore.float32)
        self.tensor.requires_grad_()


_sequence_tensor: Any = None


def sequence() -> int:
    """Return the sequence number of a node made now: every node that the run makes later has a higher one.

    The node belongs to a view of a private tensor. It is not connected to the run's graph, and is freed on return.
    """
    global _sequence_tensor
    if _sequence_tensor is None:
        _sequence_tensor = _SequenceTensor()
    node = _Tensor.view(_sequence_tensor.tensor, 1)._grad_node
    return LEAF if node is None else int(node._sequence_nr())


def add(a: Any, b: Any) -> Any:
    """Return a + b in a new tensor, outside the graph. Gradients belong to the run, so neither is written to."""
    before = _executor.enable_grad()
    _executor.set_enable_grad(False)
    try:
        return _Tensor.__add__(a, b)
    finally:
        _executor.set_enable_grad(before)


@define
class Handle:
    """Remove a hook without invalidating the jit cache.

    MindSpore's own ``remove`` increases a number in the key under which jit functions are compiled, so that each of
    them would be compiled again.
    """

    _off: Callable[[], None] | None = field(alias="off")

    def remove(self) -> None:
        off, self._off = self._off, None
        if off is not None:
            off()


@define
class NodeHooks:
    """Remove the hooks on the nodes of one call, without invalidating the jit cache; see `Handle`."""

    _hooks: list[Any] = field(alias="hooks")

    def remove(self) -> None:
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            held = hook.hook_dict_ref and hook.hook_dict_ref()
            if held is not None:
                held.pop(hook.handle_id, None)


def hook_tensor(t: Any, hook: Callable[[Any], None]) -> Handle | None:
    """Call ``hook(gradient of t)`` in each backward pass, or ``hook(None)`` where a pass computes none.

    The gradient is that of all users of the tensor. On a leaf tensor the hook stays from step to step until it is
    removed. Returns None if ``t`` takes no gradient. The caller guards the hook against exceptions, unless the
    compiler reads its source.
    """
    try:
        number = _Tensor.register_hook(t, hook)
    except RuntimeError:  # "The tensor requires grad is false": 2.7 shows it in no other way
        return None
    return Handle(lambda: _Tensor.remove_hook(number))
