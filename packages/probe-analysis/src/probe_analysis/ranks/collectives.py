"""Follow the collective calls of each process group: who makes which, and where each rank's result is."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping

from probe_format.schema import Value

from probe_analysis.align.sequence import aligned
from probe_analysis.calls.run import Call

from .compact_run import CompactRun
from .rows import Missing, Row

# function -> (name of the argument with the result, its place); that result is the same on every rank of the group.
_RESULTS = {
    "all_reduce": ("tensor", 0),
    "all_reduce_coalesced": ("tensors", 0),
    "broadcast": ("tensor", 0),
    "all_gather": ("tensor_list", 0),
    "all_gather_into_tensor": ("output_tensor", 0),
    "all_gather_single": ("output", 0),
    "_all_gather_base": ("output_tensor", 0),
    "all_gather_coalesced": ("output_tensor_lists", 0),
}
#: Every rank of the group must call these, but each may get something else.
_OTHERS = frozenset((
    "reduce", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "_reduce_scatter_base", "gather",
    "scatter", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "gather_into_tensor",
    "gather_single", "scatter_tensor",
))  # fmt: skip
_UNEVEN = frozenset((
    "all_to_all", "all_to_all_single", "gather", "gather_single", "gather_into_tensor", "scatter", "barrier",
    "monitored_barrier",
))  # fmt: skip
PIPES = frozenset(["send", "recv", "isend", "irecv", "batch_isend_irecv"])
_PREFIXES = ("Distributed.", "MintDistributed.")


def results_of(
    calls: Mapping[int, Call], runs: Mapping[int, CompactRun]
) -> Iterator[tuple[str, dict[int, Value]]]:
    """Yield the slot of each result that all ranks of a collective call share, with the result of each rank.

    calls, runs: rank -> its call, and its run.
    """
    what = next(iter(calls.values())).what
    if what not in _RESULTS:
        return
    name, place = _RESULTS[what]
    found: dict[str, dict[int, Value]] = {}
    for rank, call in calls.items():
        form = runs[rank].form(call)
        at = form.positional + form.keywords.index(name) if name in form.keywords else place
        slot = f"output.{at}"  # ``output`` has all arguments after the call
        for value in runs[rank].read(call).side("out"):
            if value.slot == slot or value.slot.startswith(f"{slot}."):
                found.setdefault(value.slot, {})[rank] = value
    yield from found.items()


def collective(call: Call) -> str | None:
    """Return the name of the function when a call is a collective or sends to another rank; None for others."""
    if call.kind != "api" or call.backward or not call.name.startswith(_PREFIXES):
        return None
    return call.what


def is_collective(what: str) -> bool:
    """Return whether all ranks of a group must make a call of this function."""
    return what in _RESULTS or what in _OTHERS


def rounds(runs: Mapping[int, CompactRun]) -> tuple[list[Row], list[Missing]]:
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
    together: list[Row] = []
    missing: list[Missing] = []
    for ranks, made in sequences.items():
        group = tuple(rank for rank in runs if ranks is None or rank in ranks)
        if len(group) > 1:
            _match(group, {rank: made.get(rank, []) for rank in group}, together, missing)
    return together, missing


Made = list[tuple[Hashable, Call]]
Group = tuple[int, ...]


def _match(group: Group, made: Mapping[int, Made], together: list[Row], missing: list[Missing]) -> None:
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
