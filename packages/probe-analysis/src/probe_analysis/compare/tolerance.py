"""Decide how far two results of one call may be apart: by dtype, length of its sums, and how far its inputs are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from .dtypes import eps_of


@frozen
class Tolerance:
    """Bound the difference that rounding explains.

    A call that sums n products in another order is off by about ``eps * sqrt(n)`` of its result; and differences in
    its inputs come out again, at times a few times larger.

    roundings: how many roundings of the dtype one call may differ by.
    gain: how many times larger than in the inputs a difference may come out.
    fixed: one relative bound in place of the first part, for every dtype; None for the rule above.
    """

    roundings: float = 4.0
    gain: float = 8.0
    fixed: float | None = None

    def of(self, tensors: Iterable[Mapping[str, Any]]) -> float:
        """Return the relative difference that one call may make by itself.

        tensors: all that it took and returned: the coarsest float dtype and the largest dimension count.
        """
        eps, length = 0.0, 1
        for tensor in tensors:
            eps, length = max(eps, eps_of(str(tensor["dtype"]))), max((length, *tensor["shape"]))
        if self.fixed is not None:
            return self.fixed if eps else 0.0
        # Half-precision products are summed in float32: their own rounding counts once, whatever the length.
        return self.roundings * (eps * math.sqrt(length) if eps < 1e-5 else eps)

    def allowed(self, own: float, brought: float) -> float:
        """Return how far the results of a call may be apart.

        own: what it may make by itself (`of`).
        brought: the largest relative difference in what it took.
        """
        return own + self.gain * brought
