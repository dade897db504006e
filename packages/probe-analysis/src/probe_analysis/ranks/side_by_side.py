"""Put the calls of a step's ranks side by side; find the calls that only some make, and which rank stopped first."""

from collections.abc import Mapping, Sequence

from attrs import frozen
from probe_format.names import BETWEEN_RANKS

from probe_analysis.align.alignment import align
from probe_analysis.calls.compact_run import CompactRun
from probe_analysis.calls.run import AtCall, Call

from .disagreement import ranks_text
from .held import all_of, ranks_in

#: First rank of each cohort -> one call as this rank made it, the lowest rank first.
Joint = Mapping[int, Call]


@frozen(eq=False)
class Missing:
    """Hold a call that all ranks of a group should make, and only some do.

    group: the ranks in question, as bits: of a collective call, those of its group that are in the dump.
    present, absent: which of them make it, and which do not.
    took: of a collective call, the first tensor that it takes, which tells it from others of its name.
    """

    call: Call
    group: int
    present: int
    absent: int
    took: str = ""


def rows_of(runs: Mapping[int, CompactRun], members: Mapping[int, int]) -> tuple[list[Joint], list[Missing]]:
    """Return the calls of a step in the order of the lowest rank, and those that not every rank makes.

    runs: first rank of each cohort -> its run. members: first rank -> all ranks of the cohort, as bits.
    """
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
        # Of a call that the lowest rank lacks, nothing says whether another rank that was cut would have come to it.
        lacking = (rank for rank in everyone - set(calls) if name not in unreached[rank])
        absent = {r for r in lacking if not (name in extra and r != first and runs[r].was_cut)}
        if absent:
            some = runs, calls, absent
            group, present, lack = (all_of(members[rank] for rank in ranks) for ranks in some)
            alone.append(Missing(next(iter(calls.values())), group, present, lack))
    return list(found.values()), alone


@frozen(eq=False)
class Stop(AtCall):
    """Hold where the first of the ranks stopped.

    step: ``step0``.
    call: the last call that the lowest of ``ranks`` completed in the step; None without one.
    """

    step: str
    ranks: tuple[int, ...]
    call: Call | None
    sentence: str


def stop_of(
    step: str, rows: Sequence[Joint], runs: Mapping[int, CompactRun], members: Mapping[int, int]
) -> Stop | None:
    """Return where the first rank stopped; None where all ended the step, or all are in one place.

    rows: the calls of the step, in the order of the lowest rank. runs, members: as in `rows_of`.
    """
    completed = {rank: [c for c in run.calls if not run.ended_inside(c)] for rank, run in runs.items()}
    places = _places(rows, completed)
    cut = [rank for rank, run in runs.items() if run.was_cut]
    earliest = min((places[rank] for rank in cut), default=None)
    first = [rank for rank in cut if places[rank] == earliest]
    rest = [rank for rank in runs if rank not in first]
    if not first or not rest:
        return None
    ranks, others = (ranks_in(all_of(members[rank] for rank in some)) for some in (first, rest))
    call = next(reversed(completed[first[0]]), None)
    at = "before its first record ended" if call is None else f"after {call.name}"
    ahead = max(rest, key=lambda rank: places[rank])
    beyond = _beyond(call, next(reversed(completed[ahead]), call), "" if ahead in cut else "ended the step")
    beyond = beyond and f"; {ranks_text(others)} {beyond}"
    return Stop(step, ranks, call, f"{ranks_text(ranks)} stopped first in {step}, {at}{beyond}.")


def _places(rows: Sequence[Joint], completed: Mapping[int, Sequence[Call]]) -> dict[int, tuple[int, int]]:
    """Return how far each rank came: the last of the rows that it has, and how many calls it has completed."""
    names = {rank: {call.name for call in calls} for rank, calls in completed.items()}
    last = {rank: n for n, row in enumerate(rows) for rank, call in row.items() if call.name in names[rank]}
    # What a rank did beyond the end of the lowest is in no row.
    return {rank: (last.get(rank, -1), len(calls)) for rank, calls in completed.items()}


def _beyond(call: Call | None, farthest: Call | None, else_: str) -> str:
    """Return what the rank that is ahead did after ``call``. farthest: its last call. else_: said if both are one."""
    if farthest is not None and (call is None or farthest.name != call.name):
        return f"went on to {farthest.name}"
    return else_


def collective(call: Call) -> str | None:
    """Return the name of the function when a call is a collective or sends to another rank; None for others."""
    if call.kind != "api" or call.backward or not call.name.startswith(BETWEEN_RANKS):
        return None
    return call.what
