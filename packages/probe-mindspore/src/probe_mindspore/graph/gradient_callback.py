"""Send gradients from a compiled graph to Python, by an identity with a gradient function of its own.

The identity is a Cell, or an operator where PyNative differentiates the graph: each fails where the other works.
"""

from typing import Any

from mindspore import nn
from mindspore.ops import functional as F
from mindspore.ops import operations as P
from mindspore.ops._grad_experimental.grad_base import bprop_getters

from probe_mindspore.hooks import autograd

from .flatten import at_compile_time
from .host_callback import Callback, HostCall


@at_compile_time
def _in_pynative_gradient() -> bool:
    """Return whether PyNative differentiates the graph that is being compiled."""
    return bool(autograd.recording())


class _GradientInsertion(P.InsertGradientOf):  # type: ignore[misc]
    """Send the gradient from an `InsertGradientOf` whose input is (x, token, extra, place).

    MindSpore (2.7.0 and 2.10.0) compiles no gradient through this operator in branches and loops that are decided
    when the graph runs, nor below ``Cell.recompute()``.
    """

    def __init__(self, call: Any) -> None:
        super().__init__(_identity)
        self.call = call
        self.add_prim_attr("probe_site", call.site)  # equal operators share one gradient function


def _identity(gradient: Any) -> Any:
    return gradient


def _bprop_of_insertion(self: Any) -> Any:
    call = self.call

    def bprop(x: Any, out: Any, dout: Any) -> Any:
        seen = call(dout[0], x[1], x[2], x[3])
        return ((F.depend(dout[0], seen), F.zeros_like(x[1]), 0, 0),)

    return bprop


_GradientInsertion.__name__ = "InsertGradientOf"  # the name by which the compiler recognizes it
bprop_getters[id(_GradientInsertion)] = _bprop_of_insertion


class _BpropCell(nn.Cell):  # type: ignore[misc]
    """Send the gradient from the bprop of a Cell, which compiles everywhere.

    But in a graph that PyNative differentiates, such a Cell makes the gradients of whatever around it is called twice
    wrong (2.7.0 and 2.10.0, with or without a callback inside). In a graph that writes a Parameter, MindSpore takes
    the Cell's input and output for one tensor, and adds up the gradients of both: `stop_gradient` keeps them apart,
    and does nothing else, as there is a bprop.
    """

    def __init__(self, call: Any) -> None:
        super().__init__(auto_prefix=False)
        self.call = call

    def construct(self, x: Any, token: Any, extra: int, place: int) -> Any:
        return F.stop_gradient(x)

    def bprop(self, x: Any, token: Any, extra: int, place: int, out: Any, dout: Any) -> Any:
        seen = self.call(dout, token, extra, place)
        return F.depend(dout, seen), F.zeros_like(token), 0, 0


class GradientCall(nn.Cell):  # type: ignore[misc]
    """Return a tensor unchanged inside a graph, and send its gradient to a callback: ``x = call(x, token)``.

    In PyNative it does nothing.

    x: a tensor whose shape is known at compile time.
    token: int32[1] from an earlier `HostCall`; it is part of the message, so the backward pass may run in any order.
    """

    def __init__(self, callback: Callback) -> None:
        super().__init__(auto_prefix=False)
        made = HostCall(callback)
        self.insertion = _GradientInsertion(made)
        self.bprop_cell = _BpropCell(made)

    def construct(self, x: Any, token: Any, extra: int = 0, place: int = 0) -> Any:
        """Return ``x``."""
        if _in_pynative_gradient():
            return self.insertion((x, token, extra, place))[0]
        return self.bprop_cell(x, token, extra, place)
