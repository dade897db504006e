"""Put the collective calls of each process group side by side: find calls that ranks lack, and results to compare."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache

from attrs import field, frozen
from probe_format import Rank

from probe_analysis.align.sequence import aligned
from probe_analysis.calls.compact_run import RecordForm
from probe_analysis.calls.run import Call

from .expected import Expected
from .held import MOST, Held, Piles, all_of, bits_of, joined, lowest, united
from .marks import held_in
from .sheet import Sheet
from .side_by_side import Missing, collective

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

#: The ranks of a process group; None for that of all ranks.
Group = tuple[int, ...] | None
#: What all ranks of a group must say alike of each of their calls, in the order of the calls.
Keys = tuple[Hashable, ...]


def is_collective(call: Call) -> bool:
    """Return whether all ranks of a group must make a call."""
    what = collective(call)
    return what in _RESULTS or what in _OTHERS


@frozen(eq=False)
class Sequenced:
    """Hold ranks that make the same collective calls in one group.

    members: the ranks, as bits. rank: the lowest. took: of each call, the first tensor that it takes.
    results: number of a call and slot -> which ranks got which result.
    """

    members: int
    rank: Rank
    calls: Sequence[Call]
    took: Sequence[str]
    results: Mapping[tuple[int, str], Piles] = field(factory=dict)

    def with_(self, other: Sequenced) -> Sequenced:
        """Return these ranks and others with the same calls as one."""
        one = self if lowest(self.members) < lowest(other.members) else other
        cells = {**self.results, **other.results}
        pairs = ((cell, self.results.get(cell, {}), other.results.get(cell, {})) for cell in cells)
        results = {cell: united(mine, theirs, MOST["held"]) for cell, mine, theirs in pairs}
        return Sequenced(self.members | other.members, one.rank, one.calls, one.took, results)


#: The calls of a group: each sequence of calls -> the ranks that make it.
Made = dict[Keys, Sequenced]


def made_by(sheet: Sheet) -> dict[Group, Made]:
    """Return the collective calls of runs that make the same calls, by their groups."""
    calls = [call for call in sheet.runs[0].calls if is_collective(call)]
    odd = {row for row, order in sheet.odd if is_collective(sheet.runs[0].calls[order])}
    if odd and len(sheet.runs) > 1:  # the tensors of these ranks are not in the columns of the sheet
        rest = [run for row, run in enumerate(sheet.runs) if row not in odd]
        alone = [Sheet((sheet.runs[row],)) for row in odd]
        return joined({}, *map(made_by, [*([Sheet(rest)] if rest else []), *alone]))
    rows: dict[tuple[Group, Keys, tuple[tuple[Call, str], ...]], int] = {}
    for row, run in enumerate(sheet.runs):
        own: dict[Group, list[tuple[Hashable, tuple[Call, str]]]] = {}
        for call in calls:
            group, key, took = _described(run.forms[call.order], call.what)
            own.setdefault(group, []).append((key, (call, took)))
        for group, made in own.items():
            keys, whose = zip(*made, strict=True)
            rows[group, keys, whose] = rows.get((group, keys, whose), 0) | 1 << row
    found: dict[Group, Made] = {}
    for (group, keys, whose), some in rows.items():
        lead = sheet.runs[lowest(some)]
        results = {
            (n, slot): sheet.piles(sheet.layout.of_record[call.order].start + number, MOST["held"], some)
            for n, (call, _) in enumerate(whose)
            for number, slot in _results_in(lead.forms[call.order], call.what)
        }
        every, firsts = zip(*whose, strict=True)
        joined(found, {group: {keys: Sequenced(sheet.ranks(some), lead.rank, every, firsts, results)}})
    return found


@lru_cache(maxsize=1024)
def _results_in(form: RecordForm, what: str) -> tuple[tuple[int, str], ...]:
    """Return number and slot of each result that all ranks of a collective call share."""
    name = _RESULTS.get(what)
    if name is None:
        return ()
    at = form.positional + form.keywords.index(name) if name in form.keywords else 0
    slot = f"output.{at}"  # ``output`` has all arguments after the call
    tensors = enumerate(form.tensors)
    return tuple((n, x[0]) for n, x in tensors if x[1] == "out" and f"{x[0]}.".startswith(f"{slot}."))


@lru_cache(maxsize=1024)
def _described(form: RecordForm, what: str) -> tuple[Group, Hashable, str]:
    """Return the group of a call, what all its ranks must say alike, and the first tensor that it takes."""
    named = (other.get("group_ranks") for _, other in form.others if isinstance(other, dict))
    ranks = next((tuple(group) for group in named if isinstance(group, list)), None)
    first = next((tensor for _, _, tensor, *_ in form.tensors), None)
    took = f" ({first['dtype']} {first['shape']})" if first else ""
    if what in _UNEVEN:
        return ranks, what, took
    whole = what not in ("all_gather", "all_gather_coalesced")
    given = [x for x in form.tensors if x[1] == "in" and (whole or x[0].count(".") < 2)]
    return ranks, (what, tuple((str(x[2]["dtype"]), str(x[2]["shape"])) for x in given)), took


def settled(group: Group, made: Made, there: int) -> Iterator[Missing | tuple[Call, Expected]]:
    """Yield the collective calls of a group that a rank does not make, and the results that its ranks should share.

    there: the ranks whose calls are known, as bits.
    """
    members = there if group is None else bits_of(group) & there
    if members.bit_count() < 2:
        return
    sequences = sorted(made.items(), key=lambda each: lowest(each[1].members))
    common = _common(made, members)
    rows: list[list[tuple[Sequenced, int]]] = [[] for _ in common]
    for keys, each in sequences:
        pairs = [(i, i) for i in range(len(common))] if keys == common else [*aligned(common, keys)]
        for i, j in pairs:
            rows[i].append((each, j))
        taken = {j for _, j in pairs}
        for j in (j for j in range(len(keys)) if j not in taken):
            yield Missing(_of(each, j), members, each.members, members & ~each.members, each.took[j])
    for i, row in enumerate(rows):
        yield from _joint(made[common], i, row, members)


def _common(made: Made, members: int) -> Keys:
    """Return the sequence of calls that most ranks of a group have, or begin. members: the ranks."""
    firsts = {keys: (lowest(each.members), each.members.bit_count()) for keys, each in made.items()}
    if silent := members & ~all_of(each.members for each in made.values()):
        firsts[()] = lowest(silent), silent.bit_count()
    ranks = {keys: count for keys, (_, count) in sorted(firsts.items(), key=lambda each: each[1])}
    begun = {each: sum(n for key, n in ranks.items() if each[: len(key)] == key) for each in ranks}
    return max(ranks, key=lambda each: (begun[each], len(each)))


def _joint(
    common: Sequenced, number: int, row: Sequence[tuple[Sequenced, int]], members: int
) -> Iterator[Missing | tuple[Call, Expected]]:
    """Yield that ranks of a group lack a call, and the results of the call that all should share.

    common: ranks that make every call. number: of the call there. row: ranks that make it, and its number for them.
    """
    call, present = _of(common, number), all_of(each.members for each, _ in row)
    if present != members:
        yield Missing(call, members, present, members & ~present, common.took[number])
    for slot in dict.fromkeys(slot for each, j in row for n, slot in each.results if n == j):
        yield call, Expected("collective", slot, _together(row, slot))


def _together(row: Sequence[tuple[Sequenced, int]], slot: str) -> Held | None:
    piles: Piles = {}
    for each, j in row:
        piles = united(piles, each.results.get((j, slot), {}), MOST["held"])
    return held_in(piles)


def _of(each: Sequenced, number: int) -> Call:
    return each.calls[number].of(each.rank)
