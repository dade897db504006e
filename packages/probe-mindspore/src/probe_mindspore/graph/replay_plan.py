"""Plan how the run's own graph, given further outputs, yields the values that taps in it would send.

The tapped graph is the user's graph compiled with taps. For each value that a tap of it would send, the plan finds
the same value in the run's graph. A value that the run does not compute (a sum of some of the terms, where the run
adds all terms up at once) is computed by the tapped graph's nodes from values of the run.

Where branches or loops are decided as the graph runs, the plan is the tapped graph, which sends the values itself.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator
from typing import Any

import numpy.typing as npt
from attrs import define, field, frozen
from mindspore.train.mind_ir_pb2 import NodeProto

from .mind_ir import SAME, MindIr, op_of
from .search import UntappableError

_NAME = "probe"
_BOOKKEEPING = ("Reshape", "Cast", "MakeTuple", "TupleGetItem", "Constant", *SAME)
_SUMS = ("AddN", "Add", *_BOOKKEEPING)


#: Why a graph that acts on the world outside has no copy, although it compiles with taps.
ACTS = (
    "it has branches or loops that are decided when it runs, and prints, sends or calls Python in it: a copy would do "
    "so twice"
)


#: Why a graph that MindSpore compiles with taps, but does not export with them, has no copy.
UNEXPORTED = (
    "it has branches or loops that are decided when it runs, and MindSpore cannot export it with taps"
)


class UncopiedError(UntappableError):
    """Report that a graph cannot be evaluated beside the run."""


class UnknownValueError(Exception):
    """Report that a value cannot be had from the run's graph."""


@frozen
class Source:
    """Say where a value comes from, by one of the first four fields.

    output: the number of a further output of the run's graph.
    argument: the number of an argument of the graph.
    parameter: the name of a Parameter.
    constant: the value itself.
    how: "run" for a value that the run computes itself, "shares" for a sum of such values, "copy" for a value that
        other operators compute from them.
    """

    output: int | None = None
    argument: int | None = None
    parameter: str | None = None
    constant: npt.NDArray[Any] | None = None
    how: str = "run"


@frozen
class PlannedMessage:
    """Describe a message that a tap would send; see `host_callback.Message`.

    number: of the message, in the order of the program.
    token: the number of the message whose answer is its token, None for none.
    values: for each tensor, where it comes from, or its elements; None where it is not wanted or cannot be computed.
    """

    site: int
    layout: int
    extra: int
    place: int
    token: int | None
    values: tuple[Source | npt.NDArray[Any] | None, ...]


@frozen
class ReplayPlan:
    """Hold the graph that is evaluated beside a run, and which messages its outputs make.

    model: the graph to evaluate, as MindIR: it gives (the run's outputs, further outputs); if not is_straight it is
        the graph with taps, which gives the run's outputs, and sends the messages itself.
    parameters: the names of the Parameters that the graph takes.
    whole: whether the graph computes all that the run does, so that outputs and written Parameters can be compared.
    messages: the messages to make from the further outputs; empty if not is_straight.
    written: the Parameters that the graph writes, or may write.
    random: whether the graph has kernels that draw random numbers.
    is_straight: whether the graph is in one piece, without branches and loops that are decided when it runs.
    """

    model: bytes
    parameters: tuple[str, ...]
    whole: bool
    messages: tuple[PlannedMessage, ...]
    written: tuple[str, ...]
    random: bool
    is_straight: bool


def replay_plan(run: bytes, tapped: Callable[[], bytes], wanted: Container[int]) -> ReplayPlan:
    """Return the plan for a graph. Raises UncopiedError where a copy of it cannot be evaluated.

    run: the user's graph, as MindIR.
    tapped: returns the graph with taps, as MindIR; raises RuntimeError where MindSpore cannot export it.
    wanted: the sites of messages whose values are recorded.
    """
    own = MindIr(run)
    if not own.is_straight:
        return _branching(own, tapped)
    builder = _Builder(own, MindIr(tapped()), wanted)
    messages = tuple(builder.messages())
    return builder.finished(messages)


def _branching(run: MindIr, tapped: Callable[[], bytes]) -> ReplayPlan:
    if any(map(run.acts, run.everything())):
        raise UncopiedError(ACTS)
    try:
        model = tapped()
    except RuntimeError as e:
        raise UncopiedError(UNEXPORTED) from e
    parameters = tuple(MindIr(model).parameters.values())
    random = any(map(run.is_random, run.everything()))
    return ReplayPlan(model, parameters, True, (), parameters, random, False)


@define(eq=False)
class _Builder:
    run: MindIr
    tapped: MindIr
    wanted: Container[int]
    _exact: dict[str, str] = field(factory=dict)
    _sums: dict[str, str] = field(factory=dict)
    _outputs: dict[str, int] = field(factory=dict)
    _made: dict[str, str] = field(factory=dict)  # tapped value -> its name in the run's graph
    _how: dict[str, set[str]] = field(factory=dict)
    _tainted: set[str] = field(factory=set)
    _dropped: set[str] = field(factory=set)
    _read: dict[tuple[str, int], str] = field(factory=dict)
    _copies: dict[str, str] = field(factory=dict)  # a value that is written over -> its copy

    def __attrs_post_init__(self) -> None:
        run = self.run
        for name, node in run.nodes.items():
            if op_of(node) == "UpdateState":
                continue
            if run.acts(node):
                self._dropped.add(name)
                self._tainted.add(name)
            elif any(i in self._tainted for i in _data(node)):
                self._tainted.add(name)
        for name in run.values():
            if name not in self._tainted and run.whose(name) is None:
                self._exact.setdefault(run.exact(name), name)
                self._sums.setdefault(run.sum(name), name)

    def messages(self) -> Iterator[PlannedMessage]:
        """Yield the messages in the order of the program."""
        tapped = self.tapped
        numbers: dict[str, int] = {}
        for name, node in tapped.nodes.items():
            if op_of(node) != "Custom":
                continue
            ours = [i for i in node.input if i not in tapped.versions]
            meta = tapped.constant(ours[0]) if tapped.op(ours[0]) == "Constant" else ()
            if len(meta) != 4:  # a host function of the user's
                continue
            site, layout, extra, place = map(int, meta)
            token = numbers.get(tapped.origin(ours[1]))
            values: list[Any] = [None] * len(ours[2:])
            if site in self.wanted:
                values = [self._source(one) for one in ours[2:]]
            numbers[name] = len(numbers)
            yield PlannedMessage(site, layout, extra, place, token, tuple(values))

    def _source(self, name: str) -> Source | None:
        tapped = self.tapped
        origin = tapped.origin(name)
        if tapped.op(origin) == "Constant":
            return Source(constant=tapped.constant(origin))
        if origin in tapped.inputs and tapped.is_as_given(name):
            return Source(argument=tapped.inputs[origin])
        try:
            here, ops = self._value(name)
        except (UnknownValueError, RecursionError):
            return None
        if here in self.run.parameters:
            return Source(parameter=self.run.parameters[here])
        how = "run" if not ops else "shares" if ops <= set(_SUMS) else "copy"
        return Source(output=self._outputs.setdefault(here, len(self._outputs)), how=how)

    def _value(self, name: str) -> tuple[str, frozenset[str]]:
        """Return (the name in the run's graph of a value of the tapped graph, the operators added to compute it).

        Raises UnknownValueError where it cannot be computed.
        """
        tapped = self.tapped
        if name in self._made:
            return self._made[name], frozenset(self._how[name])
        origin = tapped.whose(name)
        if origin is not None:
            here, ops = self._parameter(name, tapped.parameters[origin]), set[str]()
        elif name in tapped.inputs:
            here, ops = self.run.graph.input[tapped.inputs[name]].name, set()
        elif name not in tapped.nodes:
            raise UnknownValueError(name)
        else:
            found = self._exact.get(tapped.exact(name)) or self._sums.get(tapped.sum(name))
            here, ops = (self._kept(found), set[str]()) if found is not None else self._graft(name)
        self._made[name], self._how[name] = here, ops
        return here, frozenset(ops)

    def _parameter(self, name: str, own: str) -> str:
        """Return the name in the run's graph of the value that a Parameter has when the tapped graph reads it.

        name: the value that the tapped graph reads.
        own: the Parameter's own name.
        """
        there = next((n for n, p in self.run.parameters.items() if p == own), None)
        state: Counter[str] | None = None
        while self.tapped.op(name) in SAME:
            here = self.tapped.state_of(self.tapped.nodes[name])
            state = state if here is None else here
            name = self.tapped.nodes[name].input[0]
        version = 0 if state is None else state[own]
        if there is None:
            raise UnknownValueError(name)
        return self._read_at(there, own, version) if version else str(there)

    def _read_at(self, there: str, own: str, version: int) -> str:
        if (own, version) not in self._read:
            self._read[own, version] = self._reading(there, own, version)
        return self._read[own, version]

    def _reading(self, there: str, own: str, version: int) -> str:
        """Have the run's graph read a Parameter after ``version`` writes to it. Return the name of the reading.

        The elements are copied, as the next write changes the Parameter.

        there, own: the Parameter's name in the run's graph, and its own name.
        """
        run = self.run
        states = [
            n for n, c in run.versions.items() if c[own] == max(version, 1) and run.op(n) == "UpdateState"
        ]
        if not states:
            raise UnknownValueError(there)
        like = run.nodes[states[0]]
        state = states[0] if version else like.input[0]
        load, copy, update = (f"{_NAME}_{what}_{len(self._read)}" for what in ("load", "copy", "state"))
        made = [self._made_of("Load", load, there, state), self._made_of("TensorMove", copy, load)]
        self._insert(self._order().get(state, -1), state, [*made, _node(like, update, [state, copy])])
        return copy

    def _kept(self, name: str) -> str:
        """Return a value of the run's graph, or a copy of it where a kernel of the run writes over it later."""
        writer = self.run.writer_after(name)
        if writer is None:
            return name
        if name not in self._copies:
            self._copies[name] = self._copied(name, writer)
        return self._copies[name]

    def _copied(self, name: str, writer: str) -> str:
        """Copy a value before a kernel writes over it."""
        run, order = self.run, self._order()
        state = next((i for i in run.nodes[writer].input if i in run.versions), None)
        like = next((node for node in run.graph.node if op_of(node) == "UpdateState"), None)
        at = max(order.get(name, -1), order.get(state or "", -1))
        if state is None or like is None or at >= order[writer]:
            raise UnknownValueError(name)
        copy, update = f"{_NAME}_kept_{len(self._copies)}", f"{_NAME}_kept_state_{len(self._copies)}"
        self._insert(at, state, [self._made_of("TensorMove", copy, name), _node(like, update, [state, copy])])
        return copy

    def _order(self) -> dict[str, int]:
        """Return the name of each value in the run's graph -> the number of the node that makes it."""
        return {node.output[0]: i for i, node in enumerate(self.run.graph.node)}

    def _insert(self, at: int, state: str, made: list[Any]) -> None:
        """Insert nodes into the run's graph.

        at: the number of the node behind which they come.
        state: the state that the first of them takes. Later nodes that took it take the output of the last new one.
        made: the new nodes.
        """
        run, nodes = self.run, list(self.run.graph.node)
        update = str(made[-1].output[0])
        for node in nodes[at + 1 :]:
            for i, one in enumerate(node.input):
                if one == state:
                    node.input[i] = update
        del run.graph.node[:]
        run.graph.node.extend([*nodes[: at + 1], *made, *nodes[at + 1 :]])
        run.nodes.update((node.output[0], node) for node in run.graph.node)  # extend() has copied them
        run.versions[update] = run.versions[state]

    def _made_of(self, op: str, name: str, *inputs: str) -> Any:
        """Return a node of an operator without attributes."""
        primitive = f"{op}.{_NAME}"
        if all(one.name != primitive for one in self.run.model.primitives):
            made = self.run.model.primitives.add(name=primitive, op_type=op)
            made.prim_type = made.PRIMITIVE
        node = NodeProto(op_type=f"REF::{primitive}", name=name, domain="Default")
        node.input.extend(inputs)
        node.output.append(name)
        return node

    def _graft(self, name: str) -> tuple[str, set[str]]:
        """Add the tapped graph's node for a value to the run's graph, where it takes the run's values.

        Return the same as `_value`.
        """
        node = self.tapped.nodes[name]
        op = op_of(node)
        if op in SAME and not self.tapped.is_later(name):
            inner, found = self._value(node.input[0])
            return inner, set(found)
        if op in ("UpdateState", "Custom") or self.tapped.acts(node):
            raise UnknownValueError(name)
        ops: set[str] = set() if op in _BOOKKEEPING else {op}
        inputs = []
        for one in node.input:
            if one in self.tapped.versions:
                raise UnknownValueError(name)
            here, more = self._value(one)
            own = self.run.parameters.get(here)
            inputs.append(self._read_at(here, own, 0) if own in self.run.written else here)
            ops |= more
        made = _node(node, f"{_NAME}_{len(self._made)}_{len(self.run.graph.node)}", inputs)
        self._adopt(made)
        self.run.graph.node.append(made)
        return str(made.output[0]), ops

    def _adopt(self, node: Any) -> None:
        """Add the operator of a node, which comes from the tapped graph, to the run's graph."""
        head, _, name = node.op_type.rpartition("::")
        primitive = self.tapped.primitives.get(name)
        if primitive is None:
            return
        ours = f"{name}.{_NAME}"
        if ours not in self.run.primitives:
            self.run.primitives[ours] = primitive
            made = self.run.model.primitives.add()
            made.CopyFrom(primitive)
            made.name = ours
        node.op_type = f"{head}::{ours}"

    def finished(self, messages: tuple[PlannedMessage, ...]) -> ReplayPlan:
        """Give the run's graph the outputs that these messages need. Return the plan."""
        run, graph = self.run, self.run.graph
        whole = graph.output[0].name not in self._tainted
        first = graph.output[0].name if whole else next(iter(self._outputs), graph.output[0].name)
        everything = self._made_of("MakeTuple", f"{_NAME}_all", first, *self._outputs)
        graph.node.append(everything)
        graph.output[0].name = everything.output[0]
        del graph.output[1:]
        self._pruned()
        random = any(run.is_random(node) for node in graph.node)
        return ReplayPlan(
            run.model.SerializeToString(),
            tuple(run.parameters.values()),
            whole,
            messages,
            tuple(sorted(run.written)),
            random,
            True,
        )

    def _pruned(self) -> None:
        """Remove the nodes that act on the world outside, and those that no output needs."""
        run = self.run
        gone = self._dropped | self._tainted
        nodes = {node.output[0]: node for node in run.graph.node}
        keep: set[str] = set()
        waiting = [run.graph.output[0].name]
        while waiting:
            name = waiting.pop()
            node = nodes.get(name)
            if node is None or name in keep:
                continue
            keep.add(name)
            if op_of(node) == "UpdateState":
                rest = [i for i in node.input[1:] if i not in gone]
                rest = rest or [node.input[0]]
                first = node.input[0]
                del node.input[:]
                node.input.extend([first, *rest])
            elif op_of(node) == "Depend" and node.input[1] in gone:
                node.input[1] = node.input[0]
            waiting += node.input
        found = [node for node in run.graph.node if node.output[0] in keep]
        del run.graph.node[:]
        run.graph.node.extend(found)


def _data(node: Any) -> list[str]:
    """Return the inputs that a node computes with."""
    return list(node.input[:1] if op_of(node) in ("Depend", "Load") else node.input)


def _node(like: Any, name: str, inputs: list[str]) -> Any:
    made = NodeProto()
    made.CopyFrom(like)
    del made.input[:], made.output[:]
    made.input.extend(inputs)
    made.output.append(name)
    made.name = name
    return made
