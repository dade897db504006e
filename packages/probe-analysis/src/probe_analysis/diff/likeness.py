"""Tell whether two runs recorded the same things in the same way, so that what one of them lacks is a finding."""

from collections.abc import Sequence

from probe_format.errors import FormatError

from probe_analysis.align.alignment import Alignment
from probe_analysis.calls.run import Run
from probe_analysis.compare.distance import comparable

from .call_diff import CallDiff

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


def left_out(calls: Sequence[CallDiff]) -> str | None:
    """Return in words what of the calls only one of the runs has recorded, and is not compared; else None."""
    sides = next((call.unshared for call in calls if call.unshared), ())
    if not sides:
        return None
    what = " and ".join(_PARTS[side] for side in sides)
    return f"{what} of calls were not compared where only one run has them (data_mode)"


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


def unlike(alignment: Alignment) -> bool:
    """Return whether both runs have tensors, and none of the first pairs has numbers or checksums in common."""
    some = False
    for pair in alignment.pairs[:_SAMPLE]:
        for _, one, two in pair.tensors("in", "parameter", "out"):
            if comparable(one, two):
                return False
            some = some or 0 not in one["shape"]
    return some
