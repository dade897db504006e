"""Find the rank that stopped first, where ranks did not end a step: the others only waited for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from probe_analysis.calls.call import AtCall, Call
from probe_analysis.calls.run import Run

from .disagreement import ranks_text
from .rows import Row


@frozen(eq=False)
class Stop(AtCall):
    """Hold where the first of the ranks stopped.

    step: ``step0``.
    ranks: those that stopped there.
    call: the last that the first of them completed in the step; None without one.
    sentence: all of it in words.
    """

    step: str
    ranks: tuple[int, ...]
    call: Call | None
    sentence: str


def stop_of(step: str, rows: Sequence[Row], runs: Mapping[int, Run]) -> Stop | None:
    """Return where the first rank stopped; None where all ended the step, or all are in one place.

    rows: the calls of the step, in the order of the lowest rank.
    """
    completed = {rank: [c for c in run.calls if not run.ended_inside(c)] for rank, run in runs.items()}
    names = {rank: {call.name for call in calls} for rank, calls in completed.items()}
    last = {rank: n for n, row in enumerate(rows) for rank, call in row.items() if call.name in names[rank]}
    # What a rank did beyond the end of the lowest is in no row.
    places = {rank: (last.get(rank, -1), len(calls)) for rank, calls in completed.items()}
    cut = [rank for rank, run in runs.items() if run.was_cut]
    earliest = min((places[rank] for rank in cut), default=None)
    ranks = tuple(rank for rank in cut if places[rank] == earliest)
    others = tuple(rank for rank in runs if rank not in ranks)
    if not ranks or not others:
        return None
    call = next(reversed(completed[ranks[0]]), None)
    at = "before its first record ended" if call is None else f"after {call.name}"
    farthest = next(reversed(completed[max(others, key=lambda rank: places[rank])]), None)
    beyond = f"; {ranks_text(others)} went on to {farthest.name}" if farthest is not None else ""
    return Stop(step, ranks, call, f"{ranks_text(ranks)} stopped first in {step}, {at}{beyond}.")
