"""Tell a spike: a value far above the median of those before it."""

import math
import statistics
from collections import deque

from attrs import define, field

#: How many values the median is of, and how many there must be before one can be a spike.
WINDOW, FEWEST = 100, 10


@define
class RunningMedian:
    """The median of the last finite values."""

    _values: deque[float] = field(factory=lambda: deque(maxlen=WINDOW))

    def add(self, value: float) -> float | None:
        """Add a value. Return the median of those before it; None where they are too few or it is not above 0."""
        median = statistics.median(self._values) if len(self._values) >= FEWEST else 0.0
        if math.isfinite(value):
            self._values.append(value)
        return median if median > 0 else None
