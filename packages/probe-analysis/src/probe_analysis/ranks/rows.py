"""Put the calls of the ranks of one step beside one another."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from probe_analysis.align.alignment import align
from probe_analysis.calls.call import Call
from probe_analysis.calls.run import Run

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
