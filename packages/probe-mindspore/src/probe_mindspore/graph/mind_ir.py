"""Read a compiled graph as MindIR, and sign its values, so that those of another graph can be found in it.

Two graphs of one network, of which one has taps, name and number their nodes differently, and may add up the same
terms in another order. So a value has two signatures: of how it is computed, and of the terms that it is the sum of.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from mindspore.train.mind_ir_pb2 import ModelProto

SAME = ("Depend", "Load", "TensorMove")  # operators that return their first input
_SILENT = ("Load", "UpdateState", "Depend", "MakeTuple", "TupleGetItem", "TensorMove", "Constant", "Return")
_SHAPED = ("Reshape", "ExpandDims", "Squeeze", "Flatten")  # may share their first input's memory
_MOST = 256  # terms of one sum
_RANDOM = {"seed", "seed0", "seed1", "Seed0", "Seed1", "seed2", "Seed2"}
_KINDS = {1: "f4", 2: "u1", 3: "i1", 4: "u2", 5: "i2", 6: "i4", 7: "i8", 9: "?", 10: "f2", 11: "f8", 16: "u2"}
_COLLECTIVE = ("AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "NeighborExchange", "Barrier")
_COLLECTIVES = (
    "Broadcast", "Reduce", "Send", "Receive", "CollectiveScatter", "CollectiveGather", "BatchISendIRecv",
)  # fmt: skip
_OUTSIDE = ("GetNext", "PyExecute", "PyInterpret")
#: The attributes that tell two operators of one name apart, in graphs where they are not inputs.
_TOLD = (
    "stride", "strides", "pad", "pad_mode", "dilation", "group", "kernel_size", "axis", "keep_prob", "out_channel",
)  # fmt: skip


class MindIr:
    """Hold a graph and the signatures of its values.

    model, graph: what MindSpore exports.
    nodes: name of a value -> the node that makes it, in an order in which they can be computed.
    inputs: name -> the number of the graph's argument.
    parameters: name -> the Parameter's own name.
    written: the Parameters that some kernel of the graph writes.
    versions: name of a state (monad) -> (Parameter, or value that is written in place -> how often it was written
        before that state).
    """

    def __init__(self, raw: bytes) -> None:
        self.model = ModelProto.FromString(raw)
        self.graph = self.model.graph
        self.nodes = {node.output[0]: node for node in self.graph.node}
        self.inputs = {value.name: i for i, value in enumerate(self.graph.input)}
        self.parameters = {p.name: p.name.split(":", 1)[-1] for p in self.graph.parameter}
        self.primitives = {one.name: one for one in self.model.primitives}
        self.versions: dict[str, Counter[str]] = {}
        self.written: set[str] = set()
        self._exact: dict[str, str] = {}
        self._terms: dict[str, tuple[str, ...]] = {}
        self._marks: dict[str, str] = {}  # a state -> what was written in place before it
        self._unshaped: dict[str, str] = {}  # a reshaped value -> the value before all reshaping
        self._counts: Counter[str] = Counter()
        self._writers: dict[str, dict[str, None]] = {}  # a Parameter or value -> the kernels that write there
        for name, node in self.nodes.items():
            self._follow(name, node)
        for name, node in self.nodes.items():
            self._sign(name, node)

    @property
    def is_straight(self) -> bool:
        """Return whether the graph is in one piece, without branches, loops and calls of other graphs."""
        return not self.model.functions

    def everything(self) -> Iterator[Any]:
        """Yield all nodes, with those of branches and loops."""
        for part in (self.graph, *self.model.functions):
            yield from part.node

    def op(self, name: str) -> str:
        """Return the operator that makes a value; "" for an argument or a Parameter."""
        return op_of(self.nodes[name]) if name in self.nodes else ""

    def attributes(self, node: Any) -> Sequence[Any]:
        """Return the attributes of the node's operator."""
        found = self.primitives.get(node.op_type.split("::")[-1])
        return () if found is None else found.attribute

    def attribute(self, node: Any, name: str) -> int:
        """Return a whole number or flag of the node's operator; 0 where it has none."""
        return next((int(a.i) for a in self.attributes(node) if a.name == name), 0)

    def acts(self, node: Any) -> bool:
        """Return whether the node does something that must not be done twice: printing, sending, calling Python."""
        op = op_of(node)
        if op in _OUTSIDE or op in _COLLECTIVES or op.startswith(_COLLECTIVE) or op == "Custom":
            return True
        return bool(self.attribute(node, "side_effect_io")) and not self.is_random(node)

    def constant(self, name: str) -> npt.NDArray[Any]:
        """Return the elements of a constant tensor."""
        found = next(t for a in self.nodes[name].attribute for t in a.tensors)
        return np.frombuffer(found.raw_data, _KINDS[found.data_type]).reshape(tuple(found.dims))

    def exact(self, name: str) -> str:
        """Return the signature of how a value is computed."""
        return self._exact.get(name) or self._leaf(name)

    def sum(self, name: str) -> str:
        """Return the signature of a value by the terms that it is the sum of."""
        return _joined(self.terms(name))

    def terms(self, name: str) -> tuple[str, ...]:
        """Return the signatures of the terms that a value is the sum of."""
        return self._terms.get(name) or (self._leaf(name),)

    def values(self) -> Iterator[str]:
        """Yield the names of the computed values that can be outputs of the graph."""
        yield from (
            name
            for name, node in self.nodes.items()
            if op_of(node) not in ("UpdateState", "Custom", "MakeTuple")
        )

    def state_of(self, node: Any) -> Counter[str] | None:
        """Return how often each Parameter was written before this node; None if it takes no state."""
        return next((self.versions[i] for i in node.input if i in self.versions), None)

    def origin(self, name: str) -> str:
        """Return the value that a value is a reading of; the value itself where it is none."""
        while self.op(name) in SAME:
            name = self.nodes[name].input[0]
        return name

    def whose(self, name: str) -> str | None:
        """Return the name in the graph of the Parameter that a value is a reading of; None for other values."""
        origin = self.origin(name)
        return origin if origin in self.parameters else None

    def _follow(self, name: str, node: Any) -> None:
        op = op_of(node)
        if op == "Load":
            self.versions.setdefault(node.input[1], Counter())
        if op != "UpdateState":
            return
        before = self.versions.setdefault(node.input[0], Counter())
        wrote: Counter[str] = Counter()
        for kernel in self._members(node.input[1:]):
            for place in self._written_by(kernel):
                self._writers.setdefault(place, {})[kernel] = None
                wrote[place] += 1
        self.versions[name] = before + wrote if wrote else before
        self.written |= wrote.keys() & set(self.parameters.values())

    def _written_by(self, name: str) -> set[str]:
        """Return the Parameters and values where a kernel writes."""
        op = self.op(name)
        if not op or op == "Custom" or op in _SILENT or op.endswith("View"):
            return set()
        members = self._members(self.nodes[name].input)
        found = {self.parameters[one] for one in members if one in self.parameters}
        return found | {self._place(name)} if self._is_in_place(name) else found

    def _members(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the values with these names; in place of a tuple, its members."""
        for name in names:
            if self.op(name) == "MakeTuple":
                yield from self._members(self.nodes[name].input)
            else:
                yield name

    def is_later(self, name: str) -> bool:
        """Return whether a value is a reading of another value after some kernel has written over it in place."""
        return self._writes_seen(name) != self._writes_seen(self._behind(name))

    def writer_after(self, name: str) -> str | None:
        """Return the first kernel that writes over a value; None where it stays as it is."""
        return next(islice(self._writers.get(self._place(name), ()), self._writes_seen(name), None), None)

    def is_as_given(self, name: str) -> bool:
        """Return whether a value was read before any kernel wrote to its memory."""
        return not self._writes_seen(name)

    def _writes_seen(self, name: str) -> int:
        """Return how many kernels have written to a value's memory by the time that it is read."""
        place = self._place(name)
        while (behind := self._behind(name)) != name:
            state = self.state_of(self.nodes[name])
            if state is not None:
                return state[place] + self._is_in_place(name)
            name = behind
        return 0

    def _is_in_place(self, name: str) -> bool:
        """Return whether a value is what a kernel returns that writes to its first input in place."""
        node = self.nodes.get(name)
        if node is None or not node.input or op_of(node).endswith("View"):
            return False
        if not self.attribute(node, "side_effect_mem"):
            return False
        return node.input[0] in self.parameters or not any(
            i in self.parameters for i in self._members(node.input)
        )

    def _place(self, name: str) -> str:
        """Return the Parameter, or the value, in whose memory a value may lie."""
        base = self._base(name)
        return str(self.parameters.get(base, base))

    def _base(self, name: str) -> str:
        """Return the first of the values that may share a value's memory; the value itself where none does."""
        while (behind := self._behind(name)) != name:
            name = behind
        return name

    def _behind(self, name: str) -> str:
        """Return the input whose memory a value has, or may have; the value itself where it has its own."""
        node = self.nodes.get(name)
        if node is None or not node.input:
            return name
        op = op_of(node)
        shares = op in (*_SHAPED, "Depend", "Load") or op.endswith("View") or self._is_in_place(name)
        return str(node.input[0]) if shares else name

    def _leaf(self, name: str, state: Mapping[str, int] | None = None) -> str:
        if name in self.inputs:
            return f"argument {self.inputs[name]}"
        if name in self.parameters:
            own = self.parameters[name]
            return f"parameter {own} {(state or {}).get(own, 0)}"
        return f"? {name.split(':')[-1]}"

    def _sign(self, name: str, node: Any) -> None:
        op = op_of(node)
        if op == "Load" and node.input[0] not in self.parameters and self.is_later(name):
            self._signed(name, _digest(op, *(self._exactly(node, one) for one in node.input)))
        elif op in SAME:
            first = node.input[0]
            self._exact[name], self._terms[name] = self._exactly(node, first), self._added(node, first)
            if first in self._unshaped:
                self._unshaped[name] = self._unshaped[first]
        elif op in ("UpdateState", "Custom"):
            self._signed(name, op)
            wrote = [
                i for i in node.input[1:] if self._is_in_place(i) and self._base(i) not in self.parameters
            ]
            mark = self._marks.get(node.input[0], "")
            self._marks[name] = _digest(mark, *map(self.exact, wrote)) if wrote else mark
        elif op == "Reshape":
            self._sign_reshape(name, node)
        elif op == "Constant":
            self._signed(name, _digest("constant", *map(_text, node.attribute)))
        else:
            self._sign_computed(name, node)

    def _signed(self, name: str, text: str) -> None:
        self._exact[name], self._terms[name] = text, (text,)

    def _exactly(self, node: Any, one: str) -> str:
        """Return the signature of ``one``, an input of a node, at the time when the node takes it."""
        if one in self.versions:
            is_plain = op_of(node).endswith("View") and not self.is_later(node.output[0])
            return "" if is_plain else self._marks.get(one, "")
        return self._exact.get(one) or self._leaf(one, self.state_of(node))

    def _added(self, node: Any, one: str) -> tuple[str, ...]:
        """Return the terms of ``one``, an input of a node, at the time when the node takes it."""
        known = None if one in self.versions else self._terms.get(one)
        return known or (self._exactly(node, one),)

    def _sign_computed(self, name: str, node: Any) -> None:
        op = op_of(node)
        told = sorted(_text(a) for a in self.attributes(node) if a.name in _TOLD)
        head = (op, *map(_text, node.attribute), *told)
        by_terms = _digest(*head, *(_joined(self._added(node, one)) for one in node.input))
        if self.is_random(node):  # each draws its own numbers
            self._counts[by_terms] += 1
            head = (*head, str(self._counts[by_terms]))
            by_terms = _digest(*head, by_terms)
        self._exact[name] = _digest(*head, *(self._exactly(node, one) for one in node.input))
        self._terms[name] = (by_terms,)
        added = node.input if op == "Add" else ()
        if op == "AddN" and self.op(node.input[0]) == "MakeTuple":
            added = self.nodes[node.input[0]].input
        found = tuple(t for one in added if not self._is_zero(one) for t in self._added(node, one))
        if found and len(found) <= _MOST:
            self._terms[name] = found

    def _sign_reshape(self, name: str, node: Any) -> None:
        """Sign a Reshape by the last shape alone: the compiler makes one of several in a row, or none."""
        first = self._unshaped[name] = self._unshaped.get(node.input[0], node.input[0])
        shape = self._shape(name)
        self._exact[name], self._terms[name] = self.exact(first), self.terms(first)
        if shape != self._shape(first):
            self._exact[name] = _digest("Reshape", shape, self._exact[name])
            self._terms[name] = (_digest("Reshape", shape, _joined(self._terms[name])),)

    def _shape(self, name: str) -> str:
        own = self.nodes[name].attribute if name in self.nodes else ()
        found = [a.tensors for a in own if a.name == "shape"]
        found += [value.tensor for value in self.graph.input if value.name == name]
        found += [[value] for value in self.graph.parameter if value.name == name]
        return str([list(one.dims) for tensors in found for one in tensors])

    def is_random(self, node: Any) -> bool:
        """Return whether a node draws random numbers."""
        return any(a.name in _RANDOM for a in self.attributes(node))

    def _is_zero(self, name: str) -> bool:
        """Return whether a value is zeros. A sum has such terms only because a tap keeps something alive."""
        node = self.nodes.get(name)
        if node is None:
            return False
        op = op_of(node)
        if op in (*SAME, "Divs", "Muls", "Reshape", "Tile", "Transpose", "Neg"):
            return self._is_zero(node.input[0])
        if op == "Constant":
            return any(t.raw_data and not any(t.raw_data) for a in node.attribute for t in a.tensors)
        return op in ("ZerosLike", "ZerosLikeExt")


def op_of(node: Any) -> str:
    """Return the name of a node's operator."""
    return str(node.op_type.split("::")[-1].split(":")[0])


def _digest(*parts: str) -> str:
    return hashlib.md5("\0".join(parts).encode(), usedforsecurity=False).hexdigest()


def _joined(terms: tuple[str, ...]) -> str:
    return terms[0] if len(terms) == 1 else _digest("sum", *sorted(terms))


def _text(attribute: Any) -> str:
    copy = type(attribute)()
    copy.CopyFrom(attribute)
    for one in (copy, *copy.values):
        for tensor in one.tensors:
            tensor.name = tensor.ref_key = ""  # addresses, where memory is shared
    return str(copy.SerializeToString(deterministic=True).hex())
