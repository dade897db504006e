"""Record gradients of leaf tensors that a call returns, which have no autograd node for a hook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import define, field
from probe_format.values import ValuePath
from probe_runtime.collect import GradientTap, faults_reported

from probe_torch.aside import aside


@define(eq=False)
class LeafCall:
    """Describe one call that passed a leaf on.

    hook: the hook on the leaf, which serves all such calls.
    tap: gets the gradient.
    made, through: as `GradientTap.fire` takes them, with 0 as the output number: each place of the leaf among the
        outputs; its index among the inputs where what arrives is the call's share of it, else nothing.
    """

    hook: _LeafHook
    tap: GradientTap
    made: Sequence[tuple[int, ValuePath]]
    through: Sequence[tuple[int, int]]

    def remove(self) -> None:
        """Stop passing gradients to this call; the last one removes the hook."""
        hook = self.hook
        for calls in (hook.fresh, hook.current):
            if self in calls:
                calls.remove(self)
        if not hook.fresh and not hook.current:
            hook.handle.remove()


@define(eq=False)
class _LeafHook:
    """Pass the gradient of one leaf to its calls, in each backward pass that reaches it.

    handle: removes the hook.
    fresh: the calls since the last pass.
    current: the calls that got the last pass, and get every later one until there are fresh calls.

    The leaf is one tensor in all of them, so each pass brings its whole gradient.
    """

    handle: Any = None
    fresh: list[LeafCall] = field(factory=list)
    current: list[LeafCall] = field(factory=list)
    # torch warns when a tensor with hooks is saved, because they are lost. Losing this one does no harm.
    __torch_unserializable__ = True

    def __call__(self, grad: torch.Tensor) -> None:
        with faults_reported("a leaf", "its gradient's arrival"), aside():
            if self.fresh:
                self.current, self.fresh = self.fresh, []
            for call in list(self.current):
                call.tap.fire((), (grad,), call.made, call.through)


def watch(
    leaf: torch.Tensor,
    tap: GradientTap,
    made: Sequence[tuple[int, ValuePath]],
    through: Sequence[tuple[int, int]],
) -> LeafCall:
    """Pass the whole gradient of a leaf to ``tap``, until the returned handle is removed."""
    hooks: Any = leaf._backward_hooks or {}
    hook = next((h for h in list(hooks.values()) if isinstance(h, _LeafHook)), None)
    if hook is None:
        hook = _LeafHook()
        hook.handle = leaf.register_hook(hook)  # type: ignore[no-untyped-call]
    call = LeafCall(hook, tap, made, through)
    hook.fresh.append(call)
    return call


def let_go(leaf: torch.Tensor) -> None:
    """Remove our hook from a tensor that is about to be swapped, and the table of hooks if it is empty then.

    A swap leaves the table with the Python object and the hooks in it with the content, so a hook that the user puts
    in an empty table left by us would never be called.
    """
    hooks: Any = leaf._backward_hooks
    if hooks is None:
        return
    for hook in [h for h in list(hooks.values()) if isinstance(h, _LeafHook)]:
        hook.fresh, hook.current = [], []
        hook.handle.remove()
    if not hooks:
        leaf._backward_hooks = None
