"""Draw a row of numbers with characters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from .series import magnitude

_BLOCKS = "▁▂▃▄▅▆▇█"
_PLAIN = "_.-~=+*#"


def sparkline(values: Sequence[float | None], *, plain: bool = False, width: int = 40) -> str:
    """Return a character for each value, higher for larger magnitudes, on a logarithmic scale.

    ``x`` stands for what is not finite, a blank for what is not there. Of more values than ``width``, every so many are
    drawn as one, by the largest.
    plain: use ASCII alone.
    """
    values = _squeezed(values, width)
    sizes = [None if v is None else abs(v) for v in values]
    logs = [math.log(s) for s in sizes if s is not None and math.isfinite(s) and s > 0]
    low, high = (min(logs), max(logs)) if logs else (0.0, 0.0)
    marks = _PLAIN if plain else _BLOCKS
    return "".join(_mark(size, low, high, marks) for size in sizes)


def _mark(size: float | None, low: float, high: float, marks: str) -> str:
    if size is None:
        return " "
    if not math.isfinite(size):
        return "x"
    if size == 0.0:
        return marks[0]
    if high - low < 1e-12:
        return marks[len(marks) // 2]
    return marks[round((math.log(size) - low) / (high - low) * (len(marks) - 1))]


def _squeezed(values: Sequence[float | None], width: int) -> list[float | None]:
    if len(values) <= width:
        return list(values)
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    parts = (values[a:b] for a, b in itertools.pairwise(edges))
    return [max((v for v in part if v is not None), key=magnitude, default=None) for part in parts]
