"""Write the calls of one run as columns: the tree, its tensors, its other arguments and its stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field, frozen
from probe_format.errors import FormatError
from probe_format.excerpts import brief

from probe_analysis.calls import Call, Parts, Run, is_own, parts_of

from .columns import whole
from .facts import Facts
from .nodes import Node, nodes_of
from .texts import Texts

__all__ = ["RunColumns", "Writer"]

Progress = Callable[[str, int, int], None]

_KINDS = {"module": 0, "api": 1, "parameters_grad": 2, "debug": 3}
_NO_RECORD = 4
SIDES = ("in", "parameter", "out")
#: How many arguments of one call that are no tensors are in the page.
_ARGUMENTS = 60


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

    def run(self, run: Run, dump: int, progress: Progress | None = None) -> RunColumns:
        """Return a run as columns.

        dump: 0 for the first dump, 1 for the second.
        Raises FormatError when a file of the run is damaged; a damaged record alone is said in its place.
        """
        nodes = nodes_of(run)
        kinds, orders, stacks, notes, arguments = ([] for _ in range(5))
        begins, slots, sides, facts = [0], [], [], []
        for i, node in enumerate(nodes):
            call = node.call
            kinds.append(_NO_RECORD if call is None else _KINDS[call.kind])
            orders.append(-1 if call is None else call.order)
            stacks.append(self._stack(run, node))
            parts, note = _read(call)
            notes.append(self.texts.of(note))
            arguments.append(self.texts.of(_arguments(parts)))
            for value in parts.values:
                slots.append(self.texts.of(value.slot))
                sides.append(SIDES.index(value.side))
                facts.append(self.facts.of(value.tensor))
            begins.append(len(slots))
            if progress is not None and i % 512 == 511:
                progress(run.label, i + 1, len(nodes))
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


def _read(call: Call | None) -> tuple[Parts, str]:
    """Return what is in a record, and in words what is special about it."""
    if call is None:
        return Parts((), ()), "was seen and not recorded: a filter of the configuration leaves it out"
    try:
        record = call.record.json
        parts = parts_of(record)
    except FormatError as error:
        return Parts((), ()), f"cannot be read: {error}"
    notes = []
    if isinstance(record, dict):
        if record.get("raised"):
            notes.append(f"ended in an exception: {_text(record['raised'])}")
        if record.get("incomplete"):
            notes.append("the process ended inside of it")
        if "recompute" in record:
            notes.append("activation checkpointing ran it again")
        if record.get("in_backward"):
            notes.append("called while a backward pass ran")
        if record.get("later_passes"):
            notes.append("more than one backward pass reached it; this is the first")
        if record.get("partial"):
            notes.append("the backward pass did not reach every use of its inputs")
    return parts, "; ".join(notes)


def _arguments(parts: Parts) -> str:
    """Return the arguments that are no tensors, one a line."""
    lines = [f"{slot} = {_text(_plain(value))}" for slot, value in parts.others[:_ARGUMENTS]]
    more = len(parts.others) - len(lines)
    return "\n".join(lines + ([f"... and {more} more"] if more else []))


def _plain(value: Any) -> Any:
    return value["value"] if isinstance(value, dict) and "value" in value else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) < 300 else brief(value, 300)
