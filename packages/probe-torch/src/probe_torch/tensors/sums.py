"""Add gradients, without calling torch's addition for tensors with a `__torch_dispatch__` of their own.

That call would be seen by the user's subclass, or make a DTensor communicate, or wait for a collective; and torch's
older vmap has no `detach`. Such gradients are kept apart, and their numbers are added when they are described.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from attrs import evolve, frozen
from probe_runtime.collect import UNTOLD

from probe_torch.aside import apart

from .tensor_view import NO_DISPATCH, TensorView, in_older_vmap, view_of

_T: Any = torch._C.TensorBase


@frozen(eq=False)
class GradientSum:
    """Describe a gradient that is the sum of ``shares``, which are not added yet, or one without numbers.

    reason: why it has none.
    """

    shares: tuple[torch.Tensor, ...]
    requires_grad: bool = False
    reason: str = ""

    def views(self) -> list[TensorView]:
        """Return the view of each share; if they cannot be added, a single one with the reason and no data."""
        found = [view_of(share) for share in self.shares]
        first = found[0]
        if self.reason:
            return [evolve(first, data=None, bits=None, reason=self.reason)]
        for p in found:
            if p.data is None:
                return [p]
            if p.extra != first.extra or p.shape != first.shape or p.dtype != first.dtype:
                why = "its shares are laid out in different ways: to add them up takes communication"
                return [evolve(first, data=None, bits=None, reason=why)]
        return found


@apart
def plus(a: Any, b: Any) -> Any:
    """Return the sum of two gradients or GradientSums: a new tensor if torch may add them, else a GradientSum."""
    if _ordinary(a) and _ordinary(b):
        return _T.add(_T.detach(a), _T.detach(b))
    return GradientSum((*_shares(a), *_shares(b)))


def numberless(t: Any) -> GradientSum:
    """Return a GradientSum without numbers, for the gradient of a tensor in several places, of unknown shares."""
    return GradientSum(_shares(t), reason=UNTOLD)


def _ordinary(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and type(t).__torch_dispatch__ is NO_DISPATCH and not in_older_vmap(t)


def _shares(t: Any) -> tuple[torch.Tensor, ...]:
    return t.shares if isinstance(t, GradientSum) else (t,)


def summed(shares: Sequence[TensorView]) -> TensorView:
    first = shares[0]
    if len(shares) == 1:
        return first
    data = functools.reduce(_T.add, [p.data for p in shares])
    return evolve(first, data=data, bits=None)
