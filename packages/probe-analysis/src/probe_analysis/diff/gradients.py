"""Tell how far gradients of parameters may differ between two runs, from what their module got in both passes.

A gradient of a weight is a sum over rows: of each row of the module's input by the row of its output's gradient.
"""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from probe_format.schema import Side

from probe_analysis.calls.compact_run import RecordForm
from probe_analysis.calls.run import Call
from probe_analysis.compare.level import COHERENT, EVEN, LIMITS, SUMMED, own_level, size_of, unit_of

from .call_diff import CallDiff
from .course import Course


def factor(course: Course, each: CallDiff) -> float:
    """Return how far the factor between a weight's gradients in the two runs is from what the module got, in limits.

    The gradient is a product of what the module got in both passes, so its factor should be the product of theirs.
    """
    levels, factors, found = course.levels, course.levels.factors, 0.0
    passes = [course.passes(each.pair.a.path, backward=back) for back in (True, False)]
    if not factors or any(len(calls) != 1 for calls in passes) or course.is_routed(each.pair.a):
        return 0.0
    taken = (max(course.rows(calls[0], "in"), key=levels.length.item, default=-1) for calls in passes)
    (drift, rest), (more, _) = (factors.get(row, (0.0, 0.0)) for row in taken)
    for row in course.rows(each, "out"):
        if row in factors and levels.rows[row] < levels.count[row]:  # no vector
            own, besides = factors[row]
            largest = levels.big.item(row) / levels.length.item(row)
            spread = math.hypot(besides, rest) * math.hypot(largest, EVEN)
            apart = max(0.0, abs(own - drift - more) - SUMMED)
            found = max(found, apart * each.limit / LIMITS["factor"] / spread if spread else 0.0)
    return found


def own_sums(course: Course, call: Call) -> float:
    """Return the level of difference that sums over all rows of a module make by themselves."""
    passes = course.passes(call.path, backward=True)
    return _own_sums(course.run.form(call), *(course.run.form(each.pair.a) for each in passes))


@lru_cache(maxsize=256)  # layers have the same forms
def _own_sums(form: RecordForm, *passes: RecordForm) -> float:
    got = (tensor for each in passes for _, side, tensor, *_ in each.tensors if side == "in")
    sizes = [size_of(str(x["dtype"]), tuple(x["shape"])) for x in got]
    rows = max((size.count // max(1, size.features) for size in sizes), default=1)
    return own_level({**x, "shape": [rows]} for _, _, x, *_ in form.tensors)


def sums_of(course: Course, call: Call) -> Iterator[tuple[str, float]]:
    """Yield the slot of each gradient of a parameter, and the norm of what the gradient is a sum of.

    With g, the gradient of the module's output, and x, its input: for a vector the norm is |g|, and more with many
    rows, whose errors have a part in common; for a weight it is |g| |x| over the root of the number of rows.
    """
    passes = course.passes(call.path, backward=True)
    got = [x for each in passes for x in _measured(course, each.pair.a, "in")]
    norm, count = max(((float(t["Norm"]), math.prod(t["shape"])) for t in got), default=(0.0, 1))
    for slot, _, tensor, *_ in course.run.form(call).tensors:
        shape = tensor["shape"]
        first = course.passes(call.path, backward=False)[:1] if len(shape) == 2 and norm else ()
        x = next((t for each in first for t in _measured(course, each.pair.a, "in") if t["shape"]), None)
        if len(shape) == 1 or not norm:  # of what the errors have in common, each row has a share
            yield slot, norm * max(1.0, COHERENT * math.sqrt(count / max(1, *shape)))
        elif x is not None and x["shape"][-1] in shape:
            yield slot, norm * float(x["Norm"]) / math.sqrt(max(1, count // max(shape)))


def _measured(course: Course, call: Call, side: Side) -> Iterator[Mapping[str, Any]]:
    """Yield the floating-point tensors on one side that have a finite norm."""
    for number, (_, own, tensor, *_) in enumerate(course.run.form(call).tensors):
        if own == side and unit_of(str(tensor["dtype"])):
            found = course.run.tensor(call.order, number)
            norm = found.get("Norm")
            if isinstance(norm, float) and math.isfinite(norm):
                yield found
