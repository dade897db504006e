"""Put the calls of the ranks of one step beside one another, and find the rank that stopped first."""

from collections.abc import Mapping, Sequence

from attrs import frozen

from probe_analysis.align.alignment import align
from probe_analysis.calls.run import AtCall, Call, Run

from .disagreement import ranks_text

#: One call as each rank made it, the lowest rank first.
Row = Mapping[int, Call]


@frozen(eq=False)
class Missing:
    """Hold a call that not all ranks make that should.

    group: the ranks in question: of a collective call, those of its group that are in the dump.
    present, absent: which of them make it, and which do not.
    """

    call: Call
    group: tuple[int, ...]
    present: tuple[int, ...]
    absent: tuple[int, ...]


def rows_of(runs: Mapping[int, Run]) -> tuple[list[Row], list[Missing]]:
    """Return the calls of a step in the order of the lowest rank, and those that not every rank makes."""
    first, *others = runs
    found: dict[str, dict[int, Call]] = {call.name: {first: call} for call in runs[first].calls}
    extra: dict[str, dict[int, Call]] = {}
    unreached: dict[int, frozenset[str]] = {}  # rank that was cut -> calls after its end
    for rank in others:
        alignment = align(runs[first], runs[rank])
        for pair in alignment.pairs:
            found[pair.a.name][rank] = pair.b
        unreached[rank], beyond = alignment.beyond(runs[first], runs[rank])
        unreached[first] = unreached.get(first, frozenset()) | beyond
        for call in alignment.only_b:
            extra.setdefault(call.name, {})[rank] = call
    everyone = set(runs)
    alone = []
    for name, calls in (*found.items(), *extra.items()):
        # A call that the lowest rank lacks is not placed among the calls of another one that was cut.
        absent = {
            rank
            for rank in everyone - set(calls)
            if name not in unreached[rank] and not (name in extra and rank != first and runs[rank].was_cut)
        }
        if absent:
            alone.append(
                Missing(next(iter(calls.values())), tuple(runs), tuple(calls), tuple(sorted(absent)))
            )
    return list(found.values()), alone


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
    ahead = max(others, key=lambda rank: places[rank])
    farthest, beyond = next(reversed(completed[ahead]), call), "" if ahead in cut else "ended the step"
    if farthest is not None and (call is None or farthest.name != call.name):
        beyond = f"went on to {farthest.name}"
    beyond = beyond and f"; {ranks_text(others)} {beyond}"
    return Stop(step, ranks, call, f"{ranks_text(ranks)} stopped first in {step}, {at}{beyond}.")
