"""Find out which ranks are replicas, that is hold the same weights, and keep what the steps so far show of them.

It also finds out which replicas update the same weights, and notes a step in which all replicas get the same inputs.
"""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import define, evolve, field, frozen

from probe_analysis.calls.run import GRADIENTS, Call

from .cohort import PART, Cell, Cohort
from .disagreement import ranks_text
from .expected import in_update, is_divided
from .given import Given
from .groups import PIPES
from .held import Held, Piles, all_of, bits_of, lowest, ranks_in
from .marks import held_in, mark
from .side_by_side import Joint, Stop, collective


@frozen
class Weight:
    """Name a parameter: the record that shows it first, its module's path and class, and its own name."""

    record: str
    path: str
    cls: str
    name: str


@frozen
class Replicas:
    """Say which ranks should hold the same weights, and how that is known.

    groups: ranks that are replicas of one another, two or more each, as bits.
    experts: ranks that have the same experts, one or more in each group; empty where all ranks have the same.
    """

    groups: tuple[int, ...]
    why: str
    experts: tuple[int, ...] = ()

    def with_(self, found: "Replicas", new: int) -> "Replicas":
        """Return these replicas and the ranks that no earlier step has, in the groups that a later step shows.

        found: the replicas as the later step shows them. new: these ranks, as bits.
        """
        groups = _with_new(self.groups, found.groups, new)
        experts = _with_new(self.experts, found.experts, new) if self.experts else found.experts
        return Replicas(groups, self.why or found.why, experts)

    def of(self, call: Call) -> tuple[int, ...]:
        """Return the ranks that should hold the same weights in a module."""
        return self.experts if self.experts and _is_expert(call.path) else self.groups

    def differ_by_expert(self, held: Held) -> bool:
        """Return whether ranks hold the same tensor exactly where they have the same experts."""
        ranks = all_of(held)
        return len(held) > 1 and {*held} == {bits & ranks for bits in self.experts if bits & ranks}


def _with_new(groups: Sequence[int], found: Sequence[int], new: int) -> tuple[int, ...]:
    """Return groups with the new ranks of those found: what puts a rank into two of them decides nothing."""
    known = [*groups]
    for group in (each for each in found if each & new):
        met = [n for n, each in enumerate(known) if each & group]
        if not met:
            known.append(group)
        elif len(met) == 1:
            known[met[0]] |= group & new
    return tuple(known)


def _is_expert(path: str) -> bool:
    return "experts" in path.split(".")


def weights_of(cohort: Cohort) -> dict[Weight, Cell]:
    """Return each parameter of the modules that the ranks of a cohort call, and its cell in the module's first call.

    Parameters that are recorded as sharded or placed on a mesh are left out: their placement says who holds the same.
    """
    found: dict[Weight, Cell] = {}
    seen: set[tuple[str, str]] = set()
    for call in cohort.lead.calls:
        if call.kind != "module" or call.backward:
            continue
        for slot, side, base, *_ in cohort.lead.form(call).tensors:
            name = slot.partition(".")[2]
            # Tables in buffers are alike everywhere.
            mine = side == "parameter" and slot.startswith("parameters.")
            if mine and (call.path, name) not in seen and not is_divided(base):
                seen.add((call.path, name))
                found[Weight(call.name, call.path, call.what, name)] = call.order, slot, "held"
    return found


#: First rank of each cohort -> its parameters.
Weights = Mapping[int, Mapping[Weight, Cell]]
#: How many ways of holding weights are told apart among ranks that make the same calls.
_MOST = 1024


def replicas_of(cohorts: Mapping[int, Cohort], weights: Weights, given: Sequence[Sequence[int]]) -> Replicas:
    """Return which ranks of a step are replicas.

    cohorts: by their first ranks. given: groups that the user named; empty to find them out.
    """
    whole = all_of(cohort.members for cohort in cohorts.values())
    if given:
        named = (bits_of(group) & whole for group in given)
        several = tuple(group for group in named if group.bit_count() > 1)
        return Replicas(several, "The groups of replicas are those that were given.")
    if not any(weights.values()):
        why = "No parameters are recorded but DTensors, so every rank counts as a replica of every other."
        return Replicas((whole,), why)
    shared, own = (
        {n: {w: at for w, at in cells.items() if _is_expert(w.path) == which} for n, cells in weights.items()}
        for which in (False, True)
    )
    begun = _alike(cohorts, shared if any(shared.values()) else weights)
    groups = _proven(cohorts, weights, begun) if _is_piped(cohorts) else begun
    experts = tuple(_alike(cohorts, own)) if any(own.values()) and any(shared.values()) else ()
    found = _in_groups(cohorts, weights, whole, groups)
    if groups != begun:
        experts = tuple(each & group for each in experts for group in groups if each & group)
        found = evolve(found, why=f"{found.why} {_UNPROVEN}")
    return evolve(found, experts=experts if len(experts) > 1 else ())


_UNPROVEN = (
    "Nothing shows that all ranks which begin with the same weights get the same updates: they may be stages of a "
    "pipeline. --groups says which are replicas."
)


def _in_groups(
    cohorts: Mapping[int, Cohort], weights: Weights, whole: int, groups: Sequence[int]
) -> Replicas:
    """Return the replicas. groups: the ranks that hold most weights alike. whole: all ranks."""
    if groups == [whole]:
        return Replicas((whole,), "All ranks hold the same weights: they are replicas.")
    sizes = {group.bit_count() for group in groups}
    if len(sizes) == 1 and sizes != {1}:
        words = "; ".join(ranks_text(ranks_in(group)) for group in groups[:_SHOWN])
        words += f"; ... ({len(groups)} groups)" if len(groups) > _SHOWN else ""
        return Replicas(tuple(groups), f"These ranks hold the same weights, and are replicas: {words}.")
    why = _parallel(cohorts, weights)
    if not why:
        why = "The ranks have the same modules with the same shapes: they should be replicas."
        return Replicas((whole,), why)
    found = tuple(group for group in groups if group.bit_count() > 1)
    return Replicas(found, f"Weights are compared only among ranks that hold the same ones, since {why}.")


_SHOWN = 8

#: Weight -> what tells it apart, and how many elements it has.
_Marks = dict[Weight, tuple[Hashable, int]]


def _alike(cohorts: Mapping[int, Cohort], weights: Weights) -> list[int]:
    """Return the ranks in groups that agree on most of their weights, by count of elements."""
    groups: list[tuple[_Marks, list[int]]] = []
    classes = (each for first, cohort in cohorts.items() for each in _classes(cohort, weights[first]))
    for bits, tensors in sorted(classes, key=lambda each: lowest(each[0])):
        # What is filled with one number (a new norm's weight) says nothing.
        telling = {w: t for w, t in tensors.items() if t.get("Max") != t.get("Min")} or tensors
        marks: _Marks = {w: (mark(t), math.prod(t["shape"])) for w, t in telling.items()}
        for other, members in groups:
            same = sum(size for w, (own, size) in marks.items() if other.get(w, (None, 0))[0] == own)
            if 2 * same > max(sum(size for _, size in m.values()) for m in (marks, other)):
                members.append(bits)
                break
        else:
            groups.append((marks, [bits]))
    return [all_of(members) for _, members in groups]


def _is_piped(cohorts: Mapping[int, Cohort]) -> bool:
    return any(collective(call) in PIPES for each in cohorts.values() for call in each.lead.calls)


def _proven(
    cohorts: Mapping[int, Cohort], weights: Mapping[int, Mapping[Weight, Cell]], groups: Sequence[int]
) -> list[int]:
    """Return the parts of groups that are replicas where tensors are sent from rank to rank.

    Several groups of one size are believed, as each stage has so many replicas. Other stages that begin alike, as by
    one seed, get other gradients.
    """
    if len({*map(int.bit_count, groups)}) == 1 < len(groups):
        return [*groups]
    parts = _alike(cohorts, {first: _updates_of(cohorts[first], cells) for first, cells in weights.items()})
    same, found = _shares_in(cohorts, groups).same, list[int]()
    for group in groups:
        alone = (1 << rank for rank in ranks_in(group))
        found += [group & part for part in parts if group & part] if group in same else alone
    return found


def _updates_of(cohort: Cohort, weights: Mapping[Weight, Cell]) -> dict[Weight, Cell]:
    """Return what the update of a cohort gets beside its weights."""
    own = {mark for cell in weights.values() for mark in cohort.piles(cell) or {}}
    found: dict[Weight, Cell] = {}
    for call in cohort.lead.calls:
        if not in_update(call) or collective(call):
            continue
        for slot, side, base, *_ in cohort.lead.form(call).tensors:
            cell: Cell = call.order, slot, "held"
            taken = (call.kind != "api" or side == "in") and not is_divided(base)
            if taken and not (cohort.piles(cell) or {}).keys() <= own:
                found[Weight(call.name, call.path, call.what, slot)] = cell
    return found


def _classes(
    cohort: Cohort, weights: Mapping[Weight, Cell]
) -> list[tuple[int, dict[Weight, Mapping[str, Any]]]]:
    """Return the groups of a cohort's ranks that hold all weights alike, each with its weights.

    Where there are too many groups, each rank is alone, without weights.
    """
    found: list[tuple[int, dict[Weight, Mapping[str, Any]]]] = [(cohort.members, {})]
    for weight, cell in weights.items():
        piles: Piles = cohort.piles(cell)
        if piles is None:
            base = _base(cohort, cell)
            piles = {n: (1 << n, {**base, "Max": n, "Norm": n}) for n in ranks_in(cohort.members)}
        contents, parts = [*(held_in(piles) or {}).items()], []
        for bits, tensors in found:
            held = [(some, tensor) for each, tensor in contents if (some := bits & each)]
            rest = bits & ~all_of(some for some, _ in held)
            parts += [(some, {**tensors, weight: tensor}) for some, tensor in held]
            parts += [(rest, tensors)] if rest else []
        found = parts
        if len(found) > _MOST:
            return [(1 << rank, {}) for rank in ranks_in(cohort.members)]
    return found


def _parallel(cohorts: Mapping[int, Cohort], weights: Weights) -> str:
    """Return what tells that the model is divided among the ranks; empty where nothing does."""
    forms = [
        {(w.path, w.name): str(_base(cohorts[first], cell)["shape"]) for w, cell in cells.items()}
        for first, cells in weights.items()
    ]
    if any(form.keys() != forms[0].keys() for form in forms):
        return "the ranks have other modules (pipeline or expert parallelism)"
    if any(form != forms[0] for form in forms):
        return "parameters have other shapes on other ranks"
    for weight in next(iter(weights.values())):
        if "Parallel" in weight.cls and "DataParallel" not in weight.cls:
            return f"{weight.path} is a {weight.cls} (tensor parallelism)"
        whole = f"{weight.path} {weight.cls} {weight.name}"
        if any(mark in whole for mark in ("_fsdp_wrapped_module", "FullySharded", "_flat_param")):
            return f"{weight.path} is sharded by FSDP"
        if _is_expert(weight.path):
            return f"{weight.path} is an expert (expert parallelism)"
    if _is_piped(cohorts):
        return "tensors are sent from rank to rank (pipeline parallelism)"
    return ""


def _base(cohort: Cohort, cell: Cell) -> Mapping[str, Any]:
    order, slot, _ = cell
    return next(x[2] for x in cohort.lead.forms[order].tensors if x[0] == slot)


@define(eq=False)
class History:
    """Keep what the steps so far have shown.

    weights: whether modules' parameters are recorded.
    agreed: record and slot of a weight, number of the group -> the last step in which ranks of it agreed, and which.
    checked: reason -> how many tensors were compared.
    noted: what need not be a fault: kind -> the first sentence on it, and in how many steps it was seen.
    asked: the patterns of `ranks` that matched a tensor.
    given: what the replicas gave in the step before.
    """

    weights: bool = False
    agreed: dict[tuple[str, str, int], tuple[str, int]] = field(factory=dict)
    checked: Counter[str] = field(factory=Counter)
    noted: dict[str, tuple[str, int]] = field(factory=dict)
    asked: set[str] = field(factory=set)
    given: Given | None = None
    stopped: Stop | None = None

    def note(self, kind: str, label: str, text: str) -> None:
        """Keep what was seen in a step, and of the same kind in later steps only that it was seen again."""
        first, count = self.noted.get(kind, (f"{label}: {text}", 0))
        self.noted[kind] = first, count + 1

    @property
    def notes(self) -> tuple[str, ...]:
        more = "{} The like in {} more steps."
        return tuple(text if n == 1 else more.format(text, n - 1) for text, n in self.noted.values())


@frozen
class Shares:
    """Say in which groups of replicas all ranks update the same weights, and in which each updates others or parts.

    same: groups whose ranks update the same weights.
    apart: groups with two ranks that each update a weight that the other does not, as with ZeRO.
    parts: groups that update parts of weights, as with FSDP, or too many different weights to tell.
    """

    same: Sequence[int] = ()
    apart: Sequence[int] = ()
    parts: Sequence[int] = ()

    def asking(self, call: Call, groups: Sequence[int]) -> Sequence[int]:
        """Return the groups of replicas in which every rank must make a call, if one does."""
        without = (*self.parts, *(self.apart if call.kind == "optimizer_grad" else ()))
        return [group for group in groups if call.kind not in GRADIENTS or group not in without]


def shares_of(cohorts: Mapping[int, Cohort], replicas: Replicas, history: History, label: str) -> Shares:
    """Return what the optimizers of the groups of replicas update."""
    shares = _shares_in(cohorts, replicas.groups)
    updated = (each for cohort in cohorts.values() for _, each in (cohort.piles(_UPDATED) or {}).values())
    cut = any(cohort.lead.was_cut for cohort in cohorts.values())
    if len(shares.same) < len(replicas.groups) and any(updated) and not cut:
        what = "parts of weights (FSDP)" if shares.parts else _OTHERS
        history.note("updates", label, f"the ranks update {what}: not compared.")
    return shares


_UPDATED: Cell = 0, "", "updated"
_OTHERS = "different weights (a sharded optimizer, or modules that not all call)"


def _shares_in(cohorts: Mapping[int, Cohort], groups: Sequence[int]) -> Shares:
    """Return the groups by what their ranks update."""
    piles = {cohort.members: cohort.piles(_UPDATED) for cohort in cohorts.values()}
    every = [each for found in piles.values() for each in (found or {}).values()]
    # These update too much to tell.
    many = all_of(members for members, found in piles.items() if found is None)
    of_group = {group: {updated for bits, updated in every if bits & group} for group in groups}
    parts = [group for group, found in of_group.items() if group & many or PART in frozenset().union(*found)]
    apart = [group for group, found in of_group.items() if not _nested(found)]
    alike = [group for group, found in of_group.items() if len(found) == 1 and any(found)]
    return Shares([group for group in alike if group not in parts], apart, parts)


def _nested(found: Collection[frozenset[Any]]) -> bool:
    """Return whether of any two sets one holds the other."""
    return all(less <= more for less, more in pairwise(sorted(found, key=len)))


def note_inputs(label: str, rows: Sequence[Joint], cohorts: Mapping[int, Cohort], history: History) -> None:
    """Note it when every replica gets the same data: data-parallel ranks should not."""
    firsts = ((next(iter(row.values())), row) for row in rows)
    tops = ((c, row) for c, row in firsts if c.kind == "module" and not c.backward and c.parent is None)
    call, row = next(tops, (None, {}))
    if call is None or sum(cohorts[first].members.bit_count() for first in row) < 2:
        return
    takes = {first: cohorts[first].lead.read(each).side("in") for first, each in row.items()}
    if not any(takes.values()):
        return
    marks = {repr([mark(v.tensor) for v in took]) for took in takes.values()}
    slots = ((first, value.slot) for first, took in takes.items() for value in took)
    spread = (cohorts[first].spread.get((row[first].order, slot, "given"), {}) for first, slot in slots)
    if len(marks) == 1 and not any(piles is None or len(piles) > 1 for piles in spread):
        text = f"all ranks give {call.name} the same inputs, so they all compute the same. Right for"
        more = "tensor parallelism; in data parallelism a DistributedSampler is missing."
        history.note("inputs", label, f"{text} {more}")
