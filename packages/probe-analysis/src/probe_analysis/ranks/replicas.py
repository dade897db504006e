"""Find out which ranks are replicas: those that hold the same weights, and keep what the steps show of them."""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen
from probe_format.schema import Parts

from probe_analysis.calls.run import Run

from .compact_run import CompactRun
from .disagreement import mark
from .expected import in_update, is_divided
from .rows import PIPES, Joint, Stop, collective


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

    groups: ranks that are replicas of one another, in groups of two or more.
    """

    groups: tuple[tuple[int, ...], ...]
    why: str


def weights_of(run: Run) -> dict[Weight, Mapping[str, Any]]:
    """Return the parameters of the modules that a run called, as the first call of each saw them.

    Those that a record says to be sharded or placed on a mesh are not among them: their own placement speaks for them.
    """
    found: dict[Weight, Mapping[str, Any]] = {}
    seen: set[tuple[str, str]] = set()
    for call in run.calls:
        if call.kind != "module" or call.backward:
            continue
        for value in run.read(call).side("parameter"):
            name = value.slot.partition(".")[2]
            if (call.path, name) not in seen and not is_divided(value.tensor):
                seen.add((call.path, name))
                found[Weight(call.name, call.path, call.what, name)] = value.tensor
    return found


#: Rank -> its parameters.
Weights = Mapping[int, Mapping[Weight, Mapping[str, Any]]]


def replicas_of(runs: Mapping[int, Run], weights: Weights, given: Sequence[Sequence[int]]) -> Replicas:
    """Return which ranks of a step are replicas.

    given: groups that the user named; empty to find them out.
    """
    if given:
        named = tuple(tuple(rank for rank in group if rank in runs) for group in given)
        several = tuple(group for group in named if len(group) > 1)
        return Replicas(several, "The groups of replicas are those that were given.")
    if not any(weights.values()):
        why = "No parameters are recorded but DTensors, so every rank counts as a replica of every other."
        return Replicas((tuple(runs),), why)
    groups = _alike(weights)
    whole = tuple(sorted(runs))
    if groups == [whole]:
        return Replicas((whole,), "All ranks hold the same weights: they are replicas.")
    sizes = {len(group) for group in groups}
    if len(sizes) == 1 and sizes != {1}:
        words = "; ".join(f"ranks {', '.join(map(str, group))}" for group in groups)
        return Replicas(tuple(groups), f"These ranks hold the same weights, and are replicas: {words}.")
    why = _parallel(runs, weights)
    if not why:
        why = "The ranks have the same modules with the same shapes: they should be replicas."
        return Replicas((whole,), why)
    found = tuple(group for group in groups if len(group) > 1)
    return Replicas(found, f"Weights are compared only among ranks that hold the same ones, since {why}.")


def _alike(weights: Weights) -> list[tuple[int, ...]]:
    """Return the ranks in groups that agree on most of their weights, by count of elements."""
    groups: list[tuple[dict[Weight, tuple[Hashable, int]], list[int]]] = []
    for rank, tensors in weights.items():
        # What is filled with one number (a new norm's weight) says nothing.
        telling = {w: t for w, t in tensors.items() if t.get("Max") != t.get("Min")} or tensors
        marks = {weight: (mark(tensor), math.prod(tensor["shape"])) for weight, tensor in telling.items()}
        for other, members in groups:
            same = sum(size for w, (own, size) in marks.items() if other.get(w, (None, 0))[0] == own)
            if 2 * same > max(sum(size for _, size in m.values()) for m in (marks, other)):
                members.append(rank)
                break
        else:
            groups.append((marks, [rank]))
    return [tuple(sorted(members)) for _, members in groups]


def _parallel(runs: Mapping[int, Run], weights: Weights) -> str:
    """Return what tells that the model is divided among the ranks; empty where nothing does."""
    forms = [{(w.path, w.name): str(t["shape"]) for w, t in tensors.items()} for tensors in weights.values()]
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
        if "experts" in weight.path.split("."):
            return f"{weight.path} is an expert (expert parallelism)"
    if any(collective(call) in PIPES for run in runs.values() for call in run.calls):
        return "tensors are sent from rank to rank (pipeline parallelism)"
    return ""


@define(eq=False)
class History:
    """Keep what the steps before have shown.

    weights: whether modules' parameters are recorded.
    agreed: (record, slot) of a weight -> the last step in which the ranks agreed on it.
    checked: reason -> how many tensors were compared.
    noted: what need not be a fault: kind -> the first sentence on it, and in how many steps it was seen.
    asked: the patterns of `ranks` that matched a tensor.
    """

    weights: bool
    agreed: dict[tuple[str, str], str] = field(factory=dict)
    checked: Counter[str] = field(factory=Counter)
    noted: dict[str, tuple[str, int]] = field(factory=dict)
    asked: set[str] = field(factory=set)
    stopped: Stop | None = None

    def note(self, kind: str, label: str, text: str) -> None:
        """Keep what was seen in a step, and of the same kind in later steps only that it was seen again."""
        first, count = self.noted.get(kind, (f"{label}: {text}", 0))
        self.noted[kind] = first, count + 1

    @property
    def notes(self) -> tuple[str, ...]:
        more = "{} The like in {} more steps."
        return tuple(text if n == 1 else more.format(text, n - 1) for text, n in self.noted.values())


def same_updates(runs: Mapping[int, CompactRun], replicas: Replicas, history: History, label: str) -> bool:
    """Return whether the replicas' optimizers update the same weights; one that is sharded does not."""
    updated: dict[int, set[tuple[str, str]]] = {}
    for rank, run in runs.items():
        marks: dict[Any, set[tuple[str, str]]] = {}
        touched = updated.setdefault(rank, set())
        for call in run.calls:
            if call.kind == "module" and not call.backward:
                for value in run.read(call).side("parameter"):
                    marks.setdefault(mark(value.tensor), set()).add((call.path, value.slot))
            elif call.kind == "optimizer_grad":
                touched.update((call.path, value.slot) for value in run.read(call).values)
            elif in_update(call):
                for value in run.read(call).side("in"):
                    touched |= marks.get(mark(value.tensor), set())
    some = [updated[rank] for group in replicas.groups for rank in group if rank in updated]
    same = bool(some) and bool(some[0]) and all(each == some[0] for each in some)
    if any(some) and not same and not any(run.was_cut for run in runs.values()):
        text = "the ranks update different weights (a sharded optimizer, or modules that not all call): not compared."
        history.note("updates", label, text)
    return same


def note_inputs(label: str, rows: Sequence[Joint], runs: Mapping[int, CompactRun], history: History) -> None:
    """Note it when every replica gets the same data: data-parallel ranks should not."""
    firsts = ((next(iter(row.values())), row) for row in rows)
    tops = ((c, row) for c, row in firsts if c.kind == "module" and not c.backward and c.parent is None)
    call, row = next(tops, (None, {}))
    if call is None or len(row) < 2:
        return
    inputs: dict[int, Parts] = {rank: runs[rank].read(each) for rank, each in row.items()}
    marks = {repr([mark(v.tensor) for v in took]) for parts in inputs.values() if (took := parts.side("in"))}
    if len(marks) == 1:
        text = f"all ranks give {call.name} the same inputs, so they all compute the same. Right for"
        more = "tensor parallelism; in data parallelism a DistributedSampler is missing."
        history.note("inputs", label, f"{text} {more}")
