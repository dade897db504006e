"""Find values that calls pass on unchanged in the first run, but not in the second, and note how far off they are."""

import math

import numpy as np

from probe_analysis.calls.run import GRADIENTS
from probe_analysis.compare.estimates import SIDES
from probe_analysis.compare.level import COHERENT, PASSED, SUMMED

from .course import Course

_ODD = 0x9E3779B97F4A7C15 - 2**64
"""What makes one number of two: a hash, and another one times this."""


def judge(course: Course, coarsest: float) -> None:
    """Fill in how many roundings each value is away from what was passed on to there, where that is more than so far.

    All calls count: of what is late in a backward pass the record is late. coarsest: the coarsest rounding of the run.
    """
    levels, calls, of = course.levels, course.calls, course.owners
    first, second, kinds = levels.first, levels.second, np.array([x.pair.a.kind for x in calls])
    got, out = ((of >= 0) & (first != 0) & (levels.side == SIDES.index(side)) for side in ("in", "out"))
    parameter, gradient = (kinds == "parameters_grad")[of], np.isin(kinds, GRADIENTS)[of]
    made, given, taken = map(np.flatnonzero, (out & ~gradient, got, np.where(parameter, out, got)))
    passed, took = (first[rows] ^ of[rows] * _ODD for rows in (made, given))
    made = made[~np.isin(passed, took)]  # by the call itself
    made = made[np.argsort(first[made])]
    known, taken = first[made], taken[np.isin(first[taken], first[made])]
    have, want = (first[rows] ^ second[rows].view(np.int64) * _ODD for rows in (made, taken))
    for row in taken[~np.isin(want, have)].tolist():
        begin, end = (np.searchsorted(known, first[row], side) for side in ("left", "right"))
        length = levels.length[row].item()
        apart = np.abs(second[made[begin:end]] - second[row]).min().item() / length - SUMMED
        width = min(1.0, math.hypot(levels.big[row].item() / length, COHERENT))
        each = calls[of[row]]
        side = "made" if each.pair.a.kind in GRADIENTS else "given"
        setattr(each, side, max(getattr(each, side), apart / width / max(coarsest, PASSED)))
