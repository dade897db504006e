"""Record the operators that the model itself calls: as ``torch.ops.mine.scale(x)``, in exported programs, and those
made by `torch.library.custom_op`."""

import functools
import sys
from typing import Any

import torch
from probe_runtime.patching import Function, Label, Place, original_of, place
from probe_runtime.patching import thread as _thread

from probe_torch.compiling import is_compiling
from probe_torch.tensors.inflight import operator_called

from .callers import is_torch_code
from .wrappers import switch


def operators() -> list[Place]:
    """Return the methods by which Python code calls operators, each as a place whose stand-in records the calls."""
    kinds = [torch._ops.OpOverload, torch._ops.OpOverloadPacket]
    custom = getattr(getattr(torch._library, "custom_ops", None), "CustomOpDef", None)
    found = [place(kind, "__call__", _operator) for kind in kinds]
    return [*found, *([place(custom, "__call__", _recorded)] if custom else [])]


def _operator(original: Function) -> Function:
    return _recorded(_reported(original))


def _reported(original: Function) -> Function:
    """Return a method that reports a collective before anybody looks at what it returns."""

    @functools.wraps(original)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        out = original(self, *args, **kwargs)
        operator_called(self, out)
        return out

    return call


def _recorded(original: Function) -> Function:
    """Return a method that records its calls by the model; torch's own calls of operators are parts of other calls."""
    caller, torchs = sys._getframe, original_of(original)

    @functools.wraps(torchs)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return torchs(self, *args, **kwargs)
        tap = switch.tap
        if tap is None or _thread.muted or torch._C._get_tracing_state() is not None:
            return original(self, *args, **kwargs)
        if is_torch_code(caller(1)):
            return original(self, *args, **kwargs)
        return tap(_label(str(self)), functools.partial(original, self), args, kwargs)

    return call


@functools.cache
def _label(name: str) -> Label:
    """Return the label of an operator: ``Ops.mine.scale`` of what torch shows as ``mine.scale.default``.

    name: an overload, ``mine.scale``, or ``<CustomOpDef(mine::scale)>``.
    """
    plain = name.removeprefix("<CustomOpDef(").removesuffix(")>").replace("::", ".")
    return Label("Ops", ".".join(plain.split(".")[:2]))
