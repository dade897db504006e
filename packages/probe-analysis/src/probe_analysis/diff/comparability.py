"""Tell whether two runs can be compared, and note in words what was not, and what differs without being a cause."""

from collections.abc import Iterator, Sequence

from probe_format.errors import FormatError

from probe_analysis.align.alignment import Alignment
from probe_analysis.calls.run import Run
from probe_analysis.compare.distance import comparable

from .call_diff import CallDiff, Comparison
from .course import Course

_OTHER_FORM = (
    "the gradients that functions pass on are not compared: "
    "msprobe writes them in another order and number than Probe"
)
_KINDS = {"module": "modules", "api": "functions", "debug": "saved values"}


def what_is_in(run: Run) -> str:
    """Return in words at which level a run was recorded, and what it holds."""
    kinds = {call.kind for call in run.calls}
    words = [word for kind, word in _KINDS.items() if kind in kinds]
    return f"level {run.rank.header.get('level')} ({' and '.join(words) or 'gradients'})"


def recorded_otherwise(a: Run, b: Run) -> str | None:
    """Return in words what made the runs record other calls, so that one that a run lacks is no finding; else None."""
    levels = [str(run.rank.header.get("level")) for run in (a, b)]
    if levels[0] != levels[1]:
        return f"what only one run has was not compared: the first is of level {levels[0]}, the second of {levels[1]}"
    filtered = [_filtered(run) for run in (a, b)]
    if bool(filtered[0]) != bool(filtered[1]):
        which, count = ("first", filtered[0]) if filtered[0] else ("second", filtered[1])
        return f"what only one run has was not compared: scope or list left out {count} calls of the {which}"
    return None


def not_compared(
    how: Comparison, calls: Sequence[CallDiff], other: str | None, beyond: Sequence[frozenset[str]]
) -> Iterator[str]:
    """Yield, a line each, what was not compared.

    other: what `recorded_otherwise` says. beyond: the names of each run's calls that come after the end of the other.
    """
    if not how.passed_on:
        yield _OTHER_FORM
    if other is not None:
        yield other
    sides = next((call.unshared for call in calls if call.unshared), ())
    if sides:
        what = " and ".join(_PARTS[side] for side in sides)
        yield f"{what} of calls were not compared where only one run has them (data_mode)"
    for which, run in (("first", how.a), ("second", how.b)):
        if run.rank.lost:
            yield f"in the {which} run: {run.rank.lost}"
        yield from (f"of the {which} run alone, and not read: {why}" for why in run.damaged.values())
    for which, names in zip(("second", "first"), beyond, strict=True):
        if names:
            yield f"the {which} run was cut off in this step: {len(names)} records come after its end"


def no_causes(course: Course) -> Iterator[str]:
    """Yield, a line each, what differs and is no cause: dtypes, other functions, arguments that change no number."""
    calls = course.calls
    words = (v.distance.what for each in calls for v in each.forms)
    if types := next((x for x in words if x.startswith("dtype")), "").partition(",")[0]:
        count = sum(bool(each.forms) for each in calls)
        yield f"{count} records differ in form ({types}): numbers are compared as numbers"
    if usual := sorted(filter(course.usual, course.others)):
        yield f"another implementation inside of {len(usual)} modules, as {usual[0]}"
    if noted := [each for each in calls if each.arguments and each.cause is None]:
        example = f"{noted[0].pair.a.name}: {noted[0].arguments[0]}"
        yield f"{len(noted)} calls have other arguments that change no number, as {example}"


_PARTS = {"in": "inputs", "out": "results", "parameter": "parameters"}


def _filtered(run: Run) -> int:
    """Return how many calls scope and list left out, as far as the dump tells."""
    try:
        report = run.rank.report
    except FormatError:
        return 0
    count = report.counts.get("filtered", {}).get("scope or list", 0) if report is not None else 0
    return count if isinstance(count, int) else 0


#: How many pairs are looked at for numbers that both have.
_SAMPLE = 200


def unlike(how: Comparison, alignment: Alignment) -> bool:
    """Return whether both runs have tensors, and none of the first pairs has numbers or checksums in common."""
    some = False
    for pair in alignment.pairs[:_SAMPLE]:
        for _, one, two in how.tensors(pair, "in", "parameter", "out"):
            if comparable(one, two):
                return False
            some = some or 0 not in one["shape"]
    return some
