"""Take gradients by hooks on tensors, for MindSpore 2.7, which does not show its autograd graph.

A hook on a tensor gets the sum of the gradients from all its users. That is right for an output; for an input it is
more than the call's own share when others use the tensor too. An identity node before the call would isolate the
share, but it changes the order of the sums: a tensor used twice inside and once more later (post-LN attention) would
get other bits.
"""

from collections.abc import Callable, Sequence, Set
from typing import Any

from attrs import define, field
from probe_format.values import ValuePath
from probe_runtime.collect import untold

from . import autograd
from .autograd import Handle

Tensor = Any
#: As `probe_runtime.collect.Emit`, without the last two: slots that wait, and texts.
Emit = Callable[[int, list[tuple[ValuePath, Any]], list[tuple[Sequence[ValuePath], Any]], bool], None]


@define
class _TensorHook:
    """Record the gradients of one tensor of a call.

    leaf: whether it is a leaf, whose gradients after the first backward pass belong to later calls.
    emit: called with each gradient; None until the call is over.
    given, made: its places in the call's inputs and outputs.
    passes: the number of backward passes that computed a gradient so far.
    """

    leaf: bool
    emit: Emit | None = None
    given: list[ValuePath] = field(factory=list)
    made: list[ValuePath] = field(factory=list)
    passes: int = 0

    def fire(self, gradient: Tensor | None) -> None:
        # Not guarded itself: a graph compiled inside the call compiles this hook, and `try` does not compile. Emit is.
        if gradient is None or self.emit is None or (self.leaf and self.passes):
            return
        number, self.passes = self.passes, self.passes + 1
        made = [(path, gradient) for path in self.made]
        self.emit(number, made, [(self.given, gradient)] if self.given else [], False)


@define
class InputHooks:
    """Hold the hooks on a call's inputs.

    They are set when the call is entered, because a tensor that the call writes to has another gradient afterwards.
    They are removed with this object if the call raises; on a leaf they would stay.

    inputs: the hooks.
    ids: the ids of the tensors that they are on.
    handles: remove the hooks; empty once `attach` has taken them.
    """

    inputs: list[_TensorHook]
    ids: Set[int]
    handles: list[Handle]

    def __del__(self) -> None:
        for handle in self.handles:
            handle.remove()


def enter(tensors: Sequence[tuple[ValuePath, Tensor]]) -> InputHooks:
    """Hook every input that takes a gradient, once, even if it is in several arguments."""
    found: dict[int, tuple[Tensor, _TensorHook]] = {}
    for path, t in tensors:
        if autograd.takes_gradient(t):
            found.setdefault(id(t), (t, _TensorHook(_leaf(t))))[1].given.append(path)
    return InputHooks([hook for _, hook in found.values()], found.keys(), _hooked(found))


def attach(
    inputs: InputHooks, outputs: Sequence[tuple[ValuePath, Tensor]], emit: Emit, unknown: set[Any]
) -> list[Handle]:
    """Hook the outputs, and let the hooks of the inputs emit too. Return the handles of all.

    unknown: filled with the paths of outputs whose share of a gradient nothing tells.
    """
    found: dict[int, tuple[Tensor, _TensorHook]] = {}
    for path, t in outputs:
        if autograd.takes_gradient(t):
            found.setdefault(id(t), (t, _TensorHook(_leaf(t), emit)))[1].made.append(path)
    given = found.keys() & inputs.ids
    if given or len(found) < len(outputs):
        paths = {key: hook.made for key, (_, hook) in found.items()}
        unknown |= untold(paths, dict.fromkeys(given, -1), ())[0]
    handles = _hooked(found)
    if not handles:
        return []
    for hook in inputs.inputs:
        hook.emit = emit
    handles += inputs.handles
    inputs.handles = []
    return handles


def _leaf(t: Tensor) -> bool:
    return not t._has_auto_grad()


def _hooked(found: dict[int, tuple[Tensor, _TensorHook]]) -> list[Handle]:
    handles = (autograd.hook_tensor(t, hook.fire) for t, hook in found.values())
    return [handle for handle in handles if handle is not None]
