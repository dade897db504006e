"""Telling Python a gradient inside a compiled graph: a tensor goes through as it is, and its gradient is told."""

from collections.abc import Callable
from typing import Any

from mindspore import nn
from mindspore.ops import functional as F
from mindspore.ops import operations as P
from mindspore.ops._grad_experimental.grad_base import bprop_getters
from mindspore.ops.primitive import constexpr

from probe_mindspore.hooks import autograd

from .host_callback import Callback, HostCall

__all__ = ["GradientCall"]

_at_compile_time: Callable[[Callable[..., Any]], Callable[..., Any]] = constexpr(check=False)


@_at_compile_time
def _in_pynative_gradient() -> bool:
    """Whether what is compiled is a piece of what PyNative differentiates."""
    return bool(autograd.recording())


class _GradientInsertion(P.InsertGradientOf):  # type: ignore[misc]
    """`InsertGradientOf` whose gradient function also sees what its input was: (x, token, extra, place).

    MindSpore (2.7.0 and 2.10.0) compiles no gradient through it in a branch or loop that only the run decides,
    nor below ``Cell.recompute()``.
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


_GradientInsertion.__name__ = "InsertGradientOf"  # what the compiler knows it by
bprop_getters[id(_GradientInsertion)] = _bprop_of_insertion


class _BpropCell(nn.Cell):  # type: ignore[misc]
    """The same as a Cell with a bprop, which compiles everywhere.

    But in a piece that PyNative differentiates it gives wrong gradients for whatever is called twice around it
    (2.7.0 and 2.10.0, with or without a callback inside).
    """

    def __init__(self, call: Any) -> None:
        super().__init__(auto_prefix=False)
        self.call = call

    def construct(self, x: Any, token: Any, extra: int, place: int) -> Any:
        return x

    def bprop(self, x: Any, token: Any, extra: int, place: int, out: Any, dout: Any) -> Any:
        seen = self.call(dout, token, extra, place)
        return F.depend(dout, seen), F.zeros_like(token), 0, 0


class GradientCall(nn.Cell):  # type: ignore[misc]
    """In a graph: ``x = call(x, token)`` gives x as it is, and its gradient to the callback when it arrives.

    x: one tensor with a shape known at compile time. token: int32[1] of an earlier `HostCall`; it comes back
    in the message, in whatever order the backward pass runs. In PyNative it does nothing. call: makes what takes
    the gradient to the host.
    """

    def __init__(self, callback: Callback, call: Callable[[Callback], Any] = HostCall) -> None:
        super().__init__(auto_prefix=False)
        made = call(callback)
        self.insertion = _GradientInsertion(made)
        self.bprop_cell = _BpropCell(made)

    def construct(self, x: Any, token: Any, extra: int = 0, place: int = 0) -> Any:
        """The tensor itself."""
        if _in_pynative_gradient():
            return self.insertion((x, token, extra, place))[0]
        return self.bprop_cell(x, token, extra, place)
