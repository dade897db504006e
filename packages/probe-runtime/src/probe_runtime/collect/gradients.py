"""How a framework's gradients are tapped: the functions that its package hands to the recorder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen
from probe_format.values import ValuePath

__all__ = ["Emit", "Gradients"]

Found = Sequence[tuple[ValuePath, Any]]
#: called with (pass number counted from 0, [(path, gradient of an output)], [(every place in the arguments where
#: an input stands, its gradient)], whether the sums are partial)
Emit = Callable[[int, list[tuple[ValuePath, Any]], list[tuple[Sequence[ValuePath], Any]], bool], None]


@frozen
class Gradients:
    """A framework's gradient taps.

    enter(inputs, positional) remembers where the gradients of a call's inputs go; None when gradients are off. The
    first ``positional`` arguments have no keyword.
    attach(edges, outputs, keep, emit) hooks what lies between and gives the handles (each has ``remove``);
    keep(tap) is called when sums may be left over. flows(outputs): whether any of them has a gradient.
    current_pass(): a number for the backward pass that runs in this thread, -1 outside of one.
    """

    enter: Callable[[Found, int], Any]
    attach: Callable[[Any, Found, Callable[[Any], None], Emit], Sequence[Any]]
    flows: Callable[[Found], bool]
    current_pass: Callable[[], int]
