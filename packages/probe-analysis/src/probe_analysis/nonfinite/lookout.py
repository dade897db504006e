"""Look at the calls of a run one by one for values that are not finite, or close to overflow or underflow."""

from __future__ import annotations

import math
from typing import Literal

from attrs import define, field, frozen
from probe_format.read import Suspect, suspect_of
from probe_format.schema import Parts, Value

from probe_analysis.calls.run import Call, Run
from probe_analysis.compare.dtypes import dtype_name, range_of


@frozen(eq=False)
class Risk:
    """Hold a tensor whose values are close to a limit of their dtype.

    slot, dtype: its place in the record of the call, and its dtype.
    kind: whether the largest magnitude is close to the largest number, or below the smallest of full precision.
    magnitude: the largest magnitude in the tensor.
    limit: the number of the dtype that it is close to.
    """

    run: Run
    call: Call
    slot: str
    dtype: str
    kind: Literal["overflow", "underflow"]
    magnitude: float
    limit: float

    @property
    def distance(self) -> float:
        """Return how many times the magnitude may grow (or shrink) until the limit; below 1 beyond it."""
        return self.limit / self.magnitude if self.kind == "overflow" else self.magnitude / self.limit

    @property
    def sentence(self) -> str:
        """Return the risk in words."""
        dtype = dtype_name(self.dtype)
        if self.kind == "overflow":
            what = f"{self.distance:.3g} times more overflows {dtype} (largest {self.limit:.6g})"
        else:
            what = f"below the smallest {dtype} of full precision ({self.limit:.3g}): digits are lost"
        return f"{self.call.name}.{self.slot} reaches {self.magnitude:.6g}: {what}"


def _risks_of(run: Run, call: Call, parts: Parts, factor: float) -> list[Risk]:
    """Return the results of a call that are close to a limit of their dtype. factor: as in `Lookout`."""
    each = ((value.side, _risk(run, call, value, factor)) for value in parts.values)
    risks = [(side, risk) for side, risk in each if risk is not None]
    taken = {risk.kind for side, risk in risks if side != "out"}
    # What already came in so is no finding of this call; and the very largest number is a mask, not a result.
    made = (risk for side, risk in risks if side == "out" and risk.kind not in taken)
    return [risk for risk in made if risk.magnitude != risk.limit]


def _risk(run: Run, call: Call, value: Value, factor: float) -> Risk | None:
    tensor = value.tensor
    high, low = tensor.get("Max"), tensor.get("Min")
    if type(high) is not float or type(low) is not float:
        return None
    magnitude = max(abs(high), abs(low))
    if not 0.0 < magnitude < math.inf:
        return None
    dtype = str(tensor["dtype"])
    least, limit = range_of(dtype)
    if magnitude * factor >= limit:
        return Risk(run, call, value.slot, dtype, "overflow", magnitude, limit)
    return Risk(run, call, value.slot, dtype, "underflow", magnitude, least) if magnitude < least else None


@define(eq=False)
class Lookout:
    """Collect what `NonFinite` is made of, while something else reads the records: in any order, each once.

    factor: a value is a risk where so many times its magnitude overflows.
    calls: how many were looked at.
    known: how many of them have a tensor with numbers to tell by.
    """

    run: Run
    factor: float = 8.0
    calls: int = 0
    known: int = 0
    risks: list[Risk] = field(factory=list)
    _found: list[Suspect] = field(factory=list)

    def look(self, call: Call, parts: Parts) -> None:
        """Look at a call. parts: what is in its record."""
        self.calls += 1
        self.known += any("Max" in value.tensor for value in parts.values)
        suspect = suspect_of(call.name, call.order, parts)
        if suspect is not None:
            self._found.append(suspect)
        self.risks += _risks_of(self.run, call, parts, self.factor)

    @property
    def suspects(self) -> list[Suspect]:
        """Return the records with values that are not finite, in the order of the file."""
        return sorted(self._found, key=lambda suspect: suspect.order)
