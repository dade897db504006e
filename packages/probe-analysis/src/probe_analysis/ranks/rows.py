"""Put the calls of ranks beside one another: those of a step, and of each process group; and find who stopped first."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

from attrs import frozen
from probe_format.schema import Value

from probe_analysis.align.alignment import align
from probe_analysis.align.sequence import aligned
from probe_analysis.calls.run import BETWEEN_RANKS, AtCall, Call, Run

from .compact_run import CompactRun
from .disagreement import ranks_text

#: One call as each rank made it, the lowest rank first.
Joint = Mapping[int, Call]


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


def rows_of(runs: Mapping[int, Run]) -> tuple[list[Joint], list[Missing]]:
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
        lacking = (rank for rank in everyone - set(calls) if name not in unreached[rank])
        absent = {r for r in lacking if not (name in extra and r != first and runs[r].was_cut)}
        if absent:
            first_call = next(iter(calls.values()))
            alone.append(Missing(first_call, tuple(runs), tuple(calls), tuple(sorted(absent))))
    return list(found.values()), alone


@frozen(eq=False)
class Stop(AtCall):
    """Hold where the first of the ranks stopped.

    step: ``step0``.
    call: the last that the first of them completed in the step; None without one.
    """

    step: str
    ranks: tuple[int, ...]
    call: Call | None
    sentence: str


def stop_of(step: str, rows: Sequence[Joint], runs: Mapping[int, Run]) -> Stop | None:
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


#: Function -> the argument with its result, by position the first; it is the same on every rank of the group.
_RESULTS = {"all_reduce": "tensor", "broadcast": "tensor", "all_reduce_coalesced": "tensors"}
_RESULTS |= {"all_gather_into_tensor": "output_tensor", "_all_gather_base": "output_tensor"}
_RESULTS |= {"all_gather": "tensor_list", "all_gather_single": "output"}
_RESULTS |= {"all_gather_coalesced": "output_tensor_lists"}
#: Every rank of the group must call these, but each may get something else, also of another shape.
_UNEVEN = {"all_to_all", "all_to_all_single", "gather", "gather_single", "gather_into_tensor", "scatter"}
_UNEVEN |= {"barrier", "monitored_barrier"}
_OTHERS = {"reduce", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single"} | _UNEVEN
_OTHERS |= {"_reduce_scatter_base", "scatter_tensor"}
PIPES = frozenset(["send", "recv", "isend", "irecv", "batch_isend_irecv"])


def results_of(calls: Joint, runs: Mapping[int, CompactRun]) -> Iterator[tuple[str, dict[int, Value]]]:
    """Yield the slot of each result that all ranks of a collective call share, with the result of each rank.

    calls, runs: rank -> its call, and its run.
    """
    what = next(iter(calls.values())).what
    if what not in _RESULTS:
        return
    name = _RESULTS[what]
    found: dict[str, dict[int, Value]] = {}
    for rank, call in calls.items():
        form = runs[rank].form(call)
        at = form.positional + form.keywords.index(name) if name in form.keywords else 0
        slot = f"output.{at}"  # ``output`` has all arguments after the call
        for value in runs[rank].read(call).side("out"):
            if value.slot == slot or value.slot.startswith(f"{slot}."):
                found.setdefault(value.slot, {})[rank] = value
    yield from found.items()


def collective(call: Call) -> str | None:
    """Return the name of the function when a call is a collective or sends to another rank; None for others."""
    if call.kind != "api" or call.backward or not call.name.startswith(BETWEEN_RANKS):
        return None
    return call.what


def is_collective(what: str) -> bool:
    """Return whether all ranks of a group must make a call of this function."""
    return what in _RESULTS or what in _OTHERS


def rounds(runs: Mapping[int, CompactRun]) -> tuple[list[Joint], list[Missing]]:
    """Return the collective calls that were made together, and those that some rank of a group did not make.

    runs: rank -> its run of one step.
    """
    sequences: dict[tuple[int, ...] | None, dict[int, list[tuple[Hashable, Call]]]] = {}
    for rank, run in runs.items():
        for call in run.calls:
            what = collective(call)
            if what is not None and is_collective(what):
                ranks, key = _described(run, call, what)
                members = sequences.setdefault(ranks, {})
                members.setdefault(rank, []).append((key, call))
    together: list[Joint] = []
    missing: list[Missing] = []
    for ranks, made in sequences.items():
        group = tuple(rank for rank in runs if ranks is None or rank in ranks)
        if len(group) > 1:
            _match(group, {rank: made.get(rank, []) for rank in group}, together, missing)
    return together, missing


Made = list[tuple[Hashable, Call]]
Group = tuple[int, ...]


def _match(group: Group, made: Mapping[int, Made], together: list[Joint], missing: list[Missing]) -> None:
    """Put the calls of one group together: each rank's with those of the sequence that most ranks have, or begin."""
    keys = {rank: tuple(key for key, _ in calls) for rank, calls in made.items()}
    counts = Counter(keys.values())
    begun = {each: sum(n for key, n in counts.items() if each[: len(key)] == key) for each in counts}
    common = max(counts, key=lambda each: (begun[each], len(each)))
    first = next(rank for rank in group if keys[rank] == common)
    rows: list[dict[int, Call]] = [{first: call} for _, call in made[first]]
    for rank in group:
        if rank == first:
            continue
        same = [(i, i) for i in range(len(common))]
        pairs = same if keys[rank] == common else list(aligned(common, keys[rank]))
        for i, j in pairs:
            rows[i][rank] = made[rank][j][1]
        taken = {j for _, j in pairs}
        others = tuple(r for r in group if r != rank)
        alone = (call for j, (_, call) in enumerate(made[rank]) if j not in taken)
        missing += [Missing(call, group, (rank,), others) for call in alone]
    for row in rows:
        call = row[first]
        if len(row) < len(group):
            missing.append(Missing(call, group, tuple(sorted(row)), tuple(r for r in group if r not in row)))
        together.append(row)


def _described(run: CompactRun, call: Call, what: str) -> tuple[tuple[int, ...] | None, Hashable]:
    """Return the group of a call, None for that of all ranks, and what all its ranks must say alike."""
    parts = run.read(call)
    named = (other.get("group_ranks") for _, other in parts.others if isinstance(other, dict))
    ranks = next((tuple(group) for group in named if isinstance(group, list)), None)
    if what in _UNEVEN:
        return ranks, what
    whole = what not in ("all_gather", "all_gather_coalesced")
    given = [v for v in parts.side("in") if whole or v.slot.count(".") < 2]
    return ranks, (what, tuple((str(v.tensor["dtype"]), str(v.tensor["shape"])) for v in given))
