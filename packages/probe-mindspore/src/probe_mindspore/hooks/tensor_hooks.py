"""Gradients of whole tensors: what is left where MindSpore (2.7) does not show its graph.

A hook on a tensor sees the gradient that all its users together send to it. For an output that is what is wanted;
for an input it is more than the call's own share when others use the tensor too. An identity node before the call
would tell the share, but it changes the order of the sums: a tensor used twice inside and once more later (post-LN
attention) gets other bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field
from probe_format.values import ValuePath
from probe_runtime.collect import Emit

from . import autograd
from .autograd import Handle

__all__ = ["InputHooks", "attach", "enter"]

Tensor = Any


@define
class _TensorHook:
    """Where one tensor stands in a call, and how many passes have brought it a gradient.

    leaf: it belongs to no graph, so what comes after the first pass is of later calls.
    """

    leaf: bool
    emit: Emit | None = None
    given: list[ValuePath] = field(factory=list)
    made: list[ValuePath] = field(factory=list)
    passes: int = 0

    def fire(self, gradient: Tensor | None) -> None:
        # Not guarded itself: a graph compiled inside the call reads this hook, and reads no try. Emit is guarded.
        if gradient is None or self.emit is None or (self.leaf and self.passes):
            return
        number, self.passes = self.passes, self.passes + 1
        made = [(path, gradient) for path in self.made]
        self.emit(number, made, [(self.given, gradient)] if self.given else [], False)


@define
class InputHooks:
    """The hooks on a call's inputs. They are set on entry: a tensor that the call writes to has another gradient
    afterwards. If the call raises they go with the entry, for on a leaf they would stay."""

    inputs: list[_TensorHook]
    handles: list[Handle]

    def __del__(self) -> None:
        for handle in self.handles:
            handle.remove()


def enter(tensors: Sequence[tuple[ValuePath, Tensor]]) -> InputHooks:
    """Hook every input that can take a gradient, once, however often it stands in the arguments."""
    found: dict[int, tuple[Tensor, _TensorHook]] = {}
    for path, t in tensors:
        if autograd.takes_gradient(t):
            found.setdefault(id(t), (t, _TensorHook(_leaf(t))))[1].given.append(path)
    return InputHooks([places for _, places in found.values()], _hooked(found))


def attach(inputs: InputHooks, outputs: Sequence[tuple[ValuePath, Tensor]], emit: Emit) -> list[Handle]:
    """Hook the outputs, and let all hooks of the call speak; gives the handles of all."""
    found: dict[int, tuple[Tensor, _TensorHook]] = {}
    for path, t in outputs:
        if autograd.takes_gradient(t):
            found.setdefault(id(t), (t, _TensorHook(_leaf(t), emit)))[1].made.append(path)
    handles = _hooked(found)
    if not handles:
        return []
    for places in inputs.inputs:
        places.emit = emit
    handles += inputs.handles
    inputs.handles = []
    return handles


def _leaf(t: Tensor) -> bool:
    return not t._has_auto_grad()


def _hooked(found: dict[int, tuple[Tensor, _TensorHook]]) -> list[Handle]:
    handles = (autograd.hook_tensor(t, places.fire) for t, places in found.values())
    return [handle for handle in handles if handle is not None]
