"""Write the calls of one run as columns: the tree, its tensors, its other arguments and its stacks."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import define, field, frozen

from probe_analysis.calls import Run, is_own
from probe_analysis.nonfinite import Watch

from .columns import whole
from .facts import Facts
from .nodes import Node, nodes_of
from .record_columns import RecordColumns
from .texts import Texts

__all__ = ["RunColumns", "Writer"]

Progress = Callable[[str, int, int], None]

_KINDS = {"module": 0, "api": 1, "parameters_grad": 2, "debug": 3}
_NO_RECORD = 4


@frozen(eq=False)
class RunColumns:
    """Hold one run as the page has it.

    nodes: its lines in the tree.
    places: name -> place among the nodes.
    """

    run: Run
    nodes: list[Node]
    places: dict[str, int]
    document: dict[str, Any]


@define(eq=False)
class Writer:
    """Write runs for one page, which share texts, descriptions of tensors, and stacks."""

    texts: Texts = field(factory=Texts)
    facts: Facts = field(init=False)
    stacks: list[dict[str, Any]] = field(factory=lambda: [{"frames": [], "own": -1}])
    _stack_numbers: dict[tuple[str, ...], int] = field(factory=lambda: {(): 0}, repr=False)

    def __attrs_post_init__(self) -> None:
        self.facts = Facts(self.texts)

    def records(self, run: Run) -> RecordColumns:
        """Return where the records of a run are collected."""
        return RecordColumns(self.texts, self.facts, Watch(run))

    def run(self, records: RecordColumns, dump: int, progress: Progress | None = None) -> RunColumns:
        """Return a run as columns.

        records: those that were read; the others are read now.
        dump: 0 for the first dump, 1 for the second.
        Raises FormatError when a file of the run is damaged; a damaged record alone is said in its place.
        """
        run = records.watch.run
        nodes = nodes_of(run)
        kinds, orders, stacks, notes, arguments, begins = ([] for _ in range(6))
        order = array("q")  # the tensors of the columns of records, as they come in the tree
        for i, node in enumerate(nodes):
            call = node.call
            kinds.append(_NO_RECORD if call is None else _KINDS[call.kind])
            orders.append(-1 if call is None else call.order)
            stacks.append(self._stack(run, node))
            begin, end, note, argument = records.of(node.name, call)
            notes.append(note)
            arguments.append(argument)
            begins.append(len(order))
            order.extend(range(begin, end))
            if progress is not None and i % 512 == 511:
                progress(run.label, i + 1, len(nodes))
        begins.append(len(order))
        places = np.asarray(order)
        slots, sides, facts = (np.asarray(c)[places] for c in (records.slots, records.sides, records.facts))
        document = {
            "dump": dump,
            "label": run.label,
            "step": run.rank.step,
            "rank": run.rank.number,
            "mode": run.rank.mode,
            "name": whole([self.texts.of(node.name) for node in nodes]),
            "parent": whole([node.parent for node in nodes]),
            "backward": whole([node.backward for node in nodes]),
            "kind": whole(kinds),
            "order": whole(orders),
            "stack": whole(stacks),
            "note": whole(notes),
            "arguments": whole(arguments),
            "begin": whole(begins),
            "slot": whole(slots),
            "side": whole(sides),
            "fact": whole(facts),
        }
        return RunColumns(run, nodes, {node.name: i for i, node in enumerate(nodes)}, document)

    def _stack(self, run: Run, node: Node) -> int:
        frames = run.rank.stack.of(node.name) if node.call is None else run.stack_of(node.call)
        found = self._stack_numbers.setdefault(frames, len(self.stacks))
        if found == len(self.stacks):
            own = next((i for i, frame in enumerate(frames) if is_own(frame)), -1)
            plain = [self.texts.of(" ".join(frame.split())) for frame in frames]
            self.stacks.append({"frames": plain, "own": own})
        return found
