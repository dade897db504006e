"""Work out how far apart an optimizer's step may have brought each parameter of two runs, given their gradients.

How far each parameter moved along its gradient is compared as well, by sketches.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from statistics import median

from attrs import frozen

from probe_analysis.align.alignment import Pair
from probe_analysis.calls.run import GRADIENTS
from probe_analysis.compare.estimates import level_of
from probe_analysis.compare.level import along, unit_of

from .call_diff import CallDiff, Comparison, Tensor
from .pairing import Pairing

_OTHERS = 10.0
"""How many times the median deviation a parameter's rate may be off: what an optimizer makes of a gradient's norm."""
_STRAIGHT, _FEW = 0.1, 16
"""The share of a parameter's way that may be off its gradient; how many elements do not follow one by chance."""
_ERRORS, _FLIPPED = 3.0, 30.0
"""How far a parameter may be apart, as a share of its way: so many times its gradient's error, or its root."""

#: The path of a module, and the name of its parameter.
Name = tuple[str, str]
Both = tuple[Tensor, Tensor]
Step = tuple[Comparison, Iterable[Pair]]
"""Two runs of a step, and the pairs of their calls."""


def reached(way: float, error: float) -> float:
    """Return how far apart Adam may bring a parameter. way: how far it moved. error: the level of its gradient.

    Adam moves each element equally far, whatever the size of its gradient.
    """
    return way * min(1.0, _FLIPPED * math.sqrt(error))


@frozen(slots=False, eq=False)
class Moves:
    """Say how far the step `before` this one, which is read again, may have brought each parameter apart.

    how, calls: the two runs of this step, and how their calls differ.
    """

    before: Pairing | None
    how: Comparison
    calls: Sequence[CallDiff]

    @cached_property
    def _known(self) -> Mapping[Name, tuple[Both, Both, Both]]:
        """Return for parameters that differ: these in the step before, their gradients there, and these now."""
        if self.before is None:
            return {}
        both = self.before.aligned
        before = Comparison(both.a, both.b, load=False), both.alignment.pairs
        now = dict(_tensors((self.how, (each.pair for each in self.calls if each.changed))))
        was, gradients = dict(_tensors(before)), dict(_tensors(before, gradients=True))
        return {x: (was[x], gradients[x], now[x]) for x in now.keys() & was.keys() & gradients.keys()}

    @cached_property
    def reach(self) -> Mapping[Name, float]:
        """Return the level by which an optimizer may bring each parameter apart.

        An optimizer that moves along the gradient brings it apart by the gradient's error. Adam may move a share of
        the elements, as large as the error, either way.
        """
        found = {}
        for name, (was, gradients, now) in self._known.items():
            ways = (level_of(*each, "parameter") for each in zip(was, now, strict=True))
            error = level_of(*gradients)
            way = sum(min(each.largest, 1.0) for each in ways if each is not None)
            e = 1.0 if error is None else error.pooled
            found[name] = way * min(1.0, _ERRORS * e) if name in self.rates else reached(way, e)
        return found

    @cached_property
    def rates(self) -> Mapping[Name, float]:
        """Return how far each parameter's rate along its gradient differs, in multiples of what is expected.

        What is expected is the share of the way that is not along the gradient, and what other parameters differ by.
        Where that share is large, as Adam's is, or where there are no sketches, nothing is told.
        """
        found: dict[Name, tuple[float, float]] = {}
        for name, known in self._known.items():
            sketched = (type(each.get("sketch")) is list for both in known for each in both)
            if math.prod(known[0][0]["shape"]) >= _FEW and all(sketched):
                (rate, share), (rate2, share2) = (_rate(*each) for each in zip(*known, strict=True))
                if rate * rate2 > 0.0 and max(share, share2) < _STRAIGHT:
                    found[name] = math.log(rate2 / rate), math.hypot(share, share2)
        common = median(x for x, _ in found.values()) if found else 0.0
        others = _OTHERS * median(abs(x - common) for x, _ in found.values()) if found else 0.0
        return {name: abs(x - common) / (share + others) for name, (x, share) in found.items()}


def _tensors(step: Step, *, gradients: bool = False) -> Iterator[tuple[Name, Both]]:
    """Yield the parameters in both runs, or their gradients."""
    how, pairs = step
    for pair in pairs:
        call = pair.a
        if call.kind in GRADIENTS if gradients else call.kind == "module" and not call.backward:
            for slot, one, two in how.tensors(pair, "out" if gradients else "parameter"):
                name = slot.rpartition(".")[0] if gradients else slot.partition(".")[2]
                yield (call.path, name), (one, two)


def _rate(was: Tensor, gradient: Tensor, now: Tensor) -> tuple[float, float]:
    """Return by how much a parameter moved along its gradient, and the share of its way that is not along that."""
    way = [y - x for x, y in zip(was["sketch"], now["sketch"], strict=True)]
    (rate, rest), length = along(gradient["sketch"], way), math.hypot(*way)
    rounded = 6.0 * unit_of(str(now["dtype"])) * now["Norm"]
    return rate, (rest + rounded) / length if length else math.inf
