"""Reduce the levels of difference of each call's inputs, parameters and results to a few numbers, mostly the largest.

This is done for all calls of a run at once.
"""

from collections import namedtuple
from collections.abc import Iterator

import numpy as np

from probe_analysis.calls.run import GRADIENTS
from probe_analysis.compare.estimates import Column

from .call_diff import CallDiff
from .course import Course
from .gradients import sums_of

Sides = namedtuple(
    "Sides",
    "got parameters made took share middle rows norm rest fresh_norm fresh_rest fresh_whole unit",
)
"""Hold for one call the largest of what the levels of its tensors tell, 0 where none differ. Levels are pooled ones.

got, made: the levels of what it got and of what it returned, without whole numbers. Of gradients of parameters ``got``
    is that of their module's backward passes, and ``made`` is relative to what was summed to get them.
parameters: the level of its parameters; of products with them where a step moved them: along what comes in, as their
    gradients are.
took: 1 if what it got, or a parameter, differs at all.
share: the largest part that one element has of what it got.
middle: the median of the levels of what it returned. rows: the most rows of that.
norm, rest: of what it returned, as in `Level`.
fresh_norm, fresh_rest: the same of what it got and no call before it had returned.
fresh_whole: 1 if whole numbers that differ are among the latter. unit: whether the call is judged for itself.
"""


def sides(course: Course) -> Iterator[Sides]:
    """Yield what each call's levels tell, in their order."""
    calls, of, levels = course.calls, course.owners, course.levels
    if course.routed:
        levels = levels.unordered(np.array([course.is_routed(x.pair.a) for x in calls])[of])
    got, parameters, made = (np.flatnonzero((levels.side == side) & (of >= 0)) for side in range(3))

    def most(values: Column, rows: Column) -> Column:
        found = np.zeros(len(calls))
        np.maximum.at(found, of[rows], values[rows])
        return found

    unit = np.array([course.is_unit(x.pair.a) for x in calls], dtype=bool)
    fresh = got[_is_fresh(course, unit, got, parameters, made)]
    plain, rounded, returned, anew = (x[~levels.whole[x]] for x in (got, parameters, made, fresh))
    known = most(levels.pooled, plain)
    share = most(np.divide(levels.big, levels.length, out=np.zeros(len(of)), where=levels.length > 0.0), got)
    moved = most(levels.pooled * np.sqrt(levels.count / levels.rows), parameters)
    scales, converted = np.zeros(len(of)), most(levels.pooled, rounded)
    backward = ((n, x.pair.a) for n, x in enumerate(calls) if x.pair.a.backward)
    numbers = {call.name: n for n, call in backward if call.kind == "module"}
    of_passes = most(course.levels.pooled, plain)
    gradients = list[tuple[int, int]]()
    for n, each in enumerate(calls):
        if each.forms and any(value.side == "parameter" for value in each.forms):
            moved[n] = converted[n]
        if each.pair.a.kind in GRADIENTS and each.changed:
            passes = course.passes(each.pair.a.path, backward=True)
            gradients += ((n, numbers[x.pair.a.name]) for x in passes)
            _scale(course, each, scales)
    mine, its = np.array(gradients, dtype=int).reshape(-1, 2).T
    for column, values in ((known, of_passes), (share, share)):
        np.maximum.at(column, mine, values[its])
    summed = levels.within(scales)
    columns = (
        *(known, moved, most(summed.pooled, returned)),
        *(most(np.ones(len(of)), np.concatenate((got, parameters))), share),
        *(_medians(summed.pooled, of, returned, len(calls)), most(levels.rows, made)),
        *(most(summed.norm, returned), most(summed.rest, returned)),
        *(most(levels.norm, anew), most(levels.rest, anew), most(levels.whole * 1.0, fresh)),
        unit,
    )
    return map(Sides._make, zip(*(x.data for x in columns), strict=True))


def _scale(course: Course, each: CallDiff, scales: Column) -> None:
    """Fill in the norms of what the gradients of parameters in a call are sums of, by which they are judged."""
    norms = dict(sums_of(course, each.pair.a))
    for value in each.values:
        if value.row is not None and value.side == "out":
            scales[value.row] = norms.get(value.slot, 0.0)


def _is_fresh(course: Course, unit: Column, got: Column, parameters: Column, made: Column) -> Column:
    """Return for each tensor that a call got whether it is fresh: no call before returned it, or of units, no unit.

    Parameters of modules before, which are judged there, and what the step before wrote are not fresh.
    unit: which calls are units. got, parameters, made: the rows of the levels that are of each side.
    """
    marks, of = course.levels.mark, course.owners
    fresh = ~np.isin(marks[got], np.array([*course.left], dtype=np.int64))
    made = np.sort(np.concatenate((parameters, made)))
    for by, rows in ((unit[of[got]], made[unit[of[made]]]), (~unit[of[got]], made)):
        known, first = np.unique(marks[rows], return_index=True)
        place = np.minimum(np.searchsorted(known, marks[got]), len(known) - 1)
        if len(known):
            before = (known[place] == marks[got]) & (of[rows][first][place] < of[got])
            fresh &= ~(by & before)
    return fresh


def _medians(values: Column, of: Column, rows: Column, count: int) -> Column:
    """Return the median of the values of each call; 0 for a call without values."""
    order = rows[np.lexsort((values[rows], of[rows]))]
    sizes = np.bincount(of[order], minlength=count)
    some, begin = sizes > 0, np.cumsum(sizes) - sizes
    low, high = (order[begin[some] + (sizes[some] - less) // 2] for less in (1, 0))
    found = np.zeros(count)
    found[some] = (values[low] + values[high]) / 2
    return found
