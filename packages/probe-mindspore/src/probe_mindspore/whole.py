"""Gradients of whole tensors: what is left where MindSpore (2.7) does not show its graph.

A hook on a tensor sees the gradient that all its users together send to it. For an output that is what is wanted;
for an input it is more than the call's own share when others use the tensor too. An identity node before the call
would tell the share, but it changes the order of the sums: a tensor used twice inside and once more later (post-LN
attention) gets other bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field
from probe_format.tree import Path

from . import autograd
from .autograd import Handle

__all__ = ["attach"]

Tensor = Any
Emit = Callable[[int, list[tuple[Path, Tensor]], list[tuple[Path, Tensor]], bool], None]


def attach(
    inputs: Sequence[tuple[Path, Tensor]], outputs: Sequence[tuple[Path, Tensor]], emit: Emit
) -> list[Handle]:
    """Hook every tensor that can take a gradient; one hook for a tensor that stands in several places."""
    taps: dict[int, tuple[Tensor, _Places]] = {}
    for path, t in outputs:
        if autograd.takes_gradient(t):
            taps.setdefault(id(t), (t, _Places(emit)))[1].made.append(path)
    if not taps:
        return []
    for path, t in inputs:
        if autograd.takes_gradient(t):
            taps.setdefault(id(t), (t, _Places(emit)))[1].given.append(path)
    handles = (autograd.hook_tensor(t, places.fire) for t, places in taps.values())
    return [handle for handle in handles if handle is not None]


@define
class _Places:
    """Where one tensor stands in a call, and how many passes have brought it a gradient."""

    emit: Emit
    made: list[Path] = field(factory=list)
    given: list[Path] = field(factory=list)
    passes: int = 0

    def fire(self, gradient: Tensor | None) -> None:
        if gradient is None:
            return
        number, self.passes = self.passes, self.passes + 1
        self.emit(
            number, [(path, gradient) for path in self.made], [(path, gradient) for path in self.given], False
        )
