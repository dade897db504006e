"""Keep what the steps of a dump have shown about its ranks, and what need not be a fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field
from probe_format.schema import Parts

from .compact_run import CompactRun
from .disagreement import mark
from .expected import in_update
from .replicas import Replicas
from .rows import Row, Stop


@define(eq=False)
class History:
    """Keep what the steps before have shown.

    weights: whether modules' parameters are recorded.
    agreed: (record, slot) of a weight -> the last step in which the ranks agreed on it.
    checked: reason -> how many tensors were compared.
    noted: what need not be a fault: kind -> the first sentence on it, and in how many steps it was seen.
    asked: the patterns of `ranks` that matched a tensor.
    stopped: where the first rank stopped.
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
            elif in_update(call):
                for value in run.read(call).side("in"):
                    touched |= marks.get(mark(value.tensor), set())
    some = [updated[rank] for group in replicas.groups for rank in group if rank in updated]
    same = bool(some) and bool(some[0]) and all(each == some[0] for each in some)
    if any(some) and not same and not any(run.was_cut for run in runs.values()):
        text = "the ranks update different weights (a sharded optimizer, or modules that not all call): not compared."
        history.note("updates", label, text)
    return same


def note_inputs(label: str, rows: Sequence[Row], runs: Mapping[int, CompactRun], history: History) -> None:
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
