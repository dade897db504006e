"""Write the calls of one run as columns: the tree, its tensors, its other arguments and its stacks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import Factory, define, field, frozen

from probe_analysis.calls.call import Call, is_own
from probe_analysis.calls.run import Progress, Run

from .columns import Numbering, whole
from .coverage import coverage_of
from .facts import Facts
from .record_columns import RecordColumns

_KINDS = {"module": 0, "api": 1, "parameters_grad": 2, "optimizer_grad": 2, "debug": 3}
_NO_RECORD = 4
#: What is said of each line of the tree.
_COLUMNS = ("name", "parent", "backward", "kind", "order", "stack", "note", "arguments", "begin")


@frozen(eq=False)
class Node:
    """Hold a line of the tree.

    call: what was recorded; None for a call that was seen and left out.
    parent: the place of the call around it among the nodes; -1 at the top.
    """

    name: str
    call: Call | None
    parent: int


def _nodes(run: Run) -> list[Node]:
    parents = run.rank.construct.with_records(run.by_name, "backward", "forward")
    places: dict[str | None, int] = {None: -1, **{name: i for i, name in enumerate(parents)}}
    return [Node(name, run.by_name.get(name), places[parent]) for name, parent in parents.items()]


@frozen(eq=False)
class RunColumns:
    """Hold one run as the page has it.

    number: its number among the runs of the page.
    nodes: its lines in the tree.
    places: name -> place among the nodes.
    """

    run: Run
    number: int
    nodes: list[Node]
    places: dict[str, int]
    document: dict[str, Any]


@define(eq=False)
class Writer:
    """Write runs for one page, which share texts, descriptions of tensors, and stacks."""

    texts: Numbering = field(factory=lambda: Numbering({"": 0}))
    facts: Facts = field(default=Factory(lambda self: Facts(self.texts), takes_self=True))
    stacks: list[dict[str, Any]] = field(factory=lambda: [{"frames": [], "own": -1}])
    _stack_numbers: Numbering = field(factory=lambda: Numbering({(): 0}), repr=False)

    def run(
        self, records: RecordColumns, number: int, dump: int, progress: Progress | None = None
    ) -> RunColumns:
        """Return a run as columns.

        records: those that were read; the others are read now.
        number: of the run, among those of the page.
        dump: 0 for the first dump, 1 for the second.
        Raises FormatError when a file of the run is damaged; a damaged record alone is said in its place.
        """
        run = records.watch.run
        nodes = _nodes(run)
        rows = []
        order = array("q")  # the tensors of the columns of records, as they come in the tree
        for i, node in enumerate(nodes):
            call = node.call
            kind, at = (_NO_RECORD, -1) if call is None else (_KINDS[call.kind], call.order)
            backward = ".backward" in node.name if call is None else call.backward
            begin, end, note, argument = records.of(node.name, call)
            name, stack = self.texts[node.name], self._stack(run, node)
            rows.append((name, node.parent, backward, kind, at, stack, note, argument, len(order)))
            order.extend(range(begin, end))
            if progress is not None and i % 512 == 511:
                progress(run.label, i + 1, len(nodes))
        columns: list[Sequence[int]] = [*zip(*rows, strict=True)] or [()] * len(_COLUMNS)
        places = np.asarray(order)
        tensors = (("slot", records.slots), ("side", records.sides), ("fact", records.facts))
        document: dict[str, Any] = {
            "dump": dump,
            "label": run.label,
            "step": run.rank.step,
            "rank": run.rank.number,
            "mode": run.rank.mode,
            **{key: whole(column) for key, column in zip(_COLUMNS, columns, strict=True)},
            **{key: whole(np.asarray(column)[places]) for key, column in tensors},
        }
        document["coverage"] = coverage_of(run)
        document["begin"] = whole([*columns[-1], len(order)])
        return RunColumns(run, number, nodes, {node.name: i for i, node in enumerate(nodes)}, document)

    def _stack(self, run: Run, node: Node) -> int:
        frames = run.rank.stack.of(node.name) if node.call is None else node.call.stack
        found = self._stack_numbers[frames]
        if found == len(self.stacks):
            own = next((i for i, frame in enumerate(frames) if is_own(frame)), -1)
            plain = [self.texts[" ".join(frame.split())] for frame in frames]
            self.stacks.append({"frames": plain, "own": own})
        return found
