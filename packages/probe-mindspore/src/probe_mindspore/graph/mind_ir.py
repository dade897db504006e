"""Read a compiled graph as MindIR, and know its values by what they are computed from.

Two graphs of one network, of which one has taps, name and number their nodes differently, and may add the same terms up
in another order. So a value has two signatures: of how it is computed, and of what it is a sum of.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from mindspore.train.mind_ir_pb2 import ModelProto

_SAME = ("Depend", "Load", "TensorMove")  # give their first input
_SILENT = ("Load", "UpdateState", "Depend", "MakeTuple", "TupleGetItem", "TensorMove", "Constant", "Return")
_MOST = 256  # terms of one sum
_RANDOM = {"seed", "seed0", "seed1", "Seed0", "Seed1", "seed2", "Seed2"}
_KINDS = {1: "f4", 2: "u1", 3: "i1", 4: "u2", 5: "i2", 6: "i4", 7: "i8", 9: "?", 10: "f2", 11: "f8", 16: "u2"}
_COLLECTIVE = ("AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "NeighborExchange", "Barrier")
_COLLECTIVES = (
    "Broadcast",
    "Reduce",
    "Send",
    "Receive",
    "CollectiveScatter",
    "CollectiveGather",
    "BatchISendIRecv",
)
_OUTSIDE = ("GetNext", "PyExecute", "PyInterpret")


class MindIr:
    """Hold a graph.

    model, graph: what MindSpore exports.
    nodes: name of a value -> the node that makes it, in an order in which they can be computed.
    inputs: name -> the number of the graph's argument.
    parameters: name -> the Parameter's own name.
    written: the Parameters that some kernel of the graph writes.
    versions: name of a state (monad) -> Parameter -> how often it has been written by then.
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
        self._unshaped: dict[str, str] = {}  # a value -> that of which it only has another shape
        self._counts: Counter[str] = Counter()
        for name, node in self.nodes.items():
            self._follow(name, node)
        self._overwritten = {self._base(name) for name in self.nodes if self._is_in_place(name)}
        for name, node in self.nodes.items():
            self._sign(name, node)

    @property
    def is_straight(self) -> bool:
        """Return whether all that it computes is in one piece, without branches, loops and calls of other graphs."""
        return not self.model.functions

    def everything(self) -> Iterator[Any]:
        """Yield all nodes, with those of branches and loops."""
        for part in (self.graph, *self.model.functions):
            yield from part.node

    def op(self, name: str) -> str:
        """Return the operator that makes a value; "" for an argument or a Parameter."""
        return op_of(self.nodes[name]) if name in self.nodes else ""

    def attribute(self, node: Any, name: str) -> int:
        """Return a whole number or flag of the node's operator; 0 where it has none."""
        found = self.primitives.get(node.op_type.split("::")[-1])
        return next((int(a.i) for a in found.attribute if a.name == name), 0) if found is not None else 0

    def acts(self, node: Any) -> bool:
        """Return whether the node does something that must not be done twice: printing, sending, calling Python."""
        op = op_of(node)
        outside = op in _OUTSIDE or op in _COLLECTIVES or op.startswith(_COLLECTIVE)
        return (
            outside
            or op == "Custom"
            or bool(self.attribute(node, "side_effect_io") and not self.is_random(node))
        )

    def constant(self, name: str) -> npt.NDArray[Any]:
        """Return the elements of a constant tensor."""
        found = next(t for a in self.nodes[name].attribute for t in a.tensors)
        return np.frombuffer(found.raw_data, _KINDS[found.data_type]).reshape(tuple(found.dims))

    def exact(self, name: str) -> str:
        """Return the signature of how a value is computed."""
        return self._exact.get(name) or self._leaf(name)

    def sum(self, name: str) -> str:
        """Return the signature of a value by the terms that it is the sum of."""
        terms = self.terms(name)
        return terms[0] if len(terms) == 1 else _digest("sum", *sorted(terms))

    def terms(self, name: str) -> tuple[str, ...]:
        """Return the signatures of the terms that a value is the sum of."""
        return self._terms.get(name) or (self._leaf(name),)

    def values(self) -> Iterator[str]:
        """Yield the names of all that is computed, and can be given back."""
        yield from (
            name
            for name, node in self.nodes.items()
            if op_of(node) not in ("UpdateState", "Custom", "MakeTuple")
        )

    def state_of(self, node: Any) -> Counter[str] | None:
        """Return how often each Parameter was written before this node; None if it takes no state."""
        return next((self.versions[i] for i in node.input if i in self.versions), None)

    def whose(self, name: str) -> str | None:
        """Return the name of the Parameter that a value is a reading of."""
        while self.op(name) in _SAME:
            name = self.nodes[name].input[0]
        return name if name in self.parameters else None

    def _follow(self, name: str, node: Any) -> None:
        op = op_of(node)
        if op == "Load":
            self.versions.setdefault(node.input[1], Counter())
        if op != "UpdateState":
            return
        before = self.versions.setdefault(node.input[0], Counter())
        wrote = [p for i in node.input[1:] for p in self._writes(i)]
        self.versions[name] = before + Counter(wrote) if wrote else before

    def _writes(self, name: str) -> Iterator[str]:
        node = self.nodes.get(name)
        if node is None or (op_of(node) in _SILENT and op_of(node) != "MakeTuple") or op_of(node) == "Custom":
            return
        for one in node.input:
            if op_of(node) == "MakeTuple":
                yield from self._writes(one)
            elif one in self.parameters:
                self.written.add(self.parameters[one])
                yield self.parameters[one]

    def is_later(self, node: Any) -> bool:
        """Return whether a node reads a value that may have been written in place since."""
        return any(self._marks.get(i) for i in node.input) and self.is_overwritten(node.input[0])

    def is_overwritten(self, name: str) -> bool:
        """Return whether some kernel writes in place where a value lies, which is no Parameter."""
        return self._base(name) in self._overwritten

    def _is_in_place(self, name: str) -> bool:
        """Return whether a value is another one's memory, written to."""
        node = self.nodes.get(name)
        if node is None or op_of(node).endswith("View") or not self.attribute(node, "side_effect_mem"):
            return False
        return not any(i in self.parameters for i in node.input)

    def _base(self, name: str) -> str:
        """Return the value whose memory a value may lie in."""
        while (op := self.op(name)) in ("Reshape", *_SAME) or op.endswith("View") or self._is_in_place(name):
            name = self.nodes[name].input[0]
        return name

    def _leaf(self, name: str, state: Mapping[str, int] | None = None) -> str:
        if name in self.inputs:
            return f"argument {self.inputs[name]}"
        if name in self.parameters:
            own = self.parameters[name]
            return f"parameter {own} {(state or {}).get(own, 0)}"
        return f"? {name.split(':')[-1]}"

    def _sign(self, name: str, node: Any) -> None:
        op, state = op_of(node), self.state_of(node)

        def exact(one: str) -> str:
            if one in self.versions:
                return self._marks.get(one, "") if not op.endswith("View") or self.is_later(node) else ""
            return self._exact.get(one) or self._leaf(one, state)

        def terms(one: str) -> tuple[str, ...]:
            return (
                (exact(one),) if one in self.versions else self._terms.get(one) or (self._leaf(one, state),)
            )

        if op == "Load" and self.is_later(node):
            self._exact[name] = _digest(op, *map(exact, node.input))
            self._terms[name] = (self._exact[name],)
            return
        if op in _SAME:
            self._exact[name], self._terms[name] = exact(node.input[0]), terms(node.input[0])
            if node.input[0] in self._unshaped:
                self._unshaped[name] = self._unshaped[node.input[0]]
            return
        if op in ("UpdateState", "Custom"):
            self._exact[name], self._terms[name] = op, (op,)
            wrote = [self._exact[i] for i in node.input[1:] if self._is_in_place(i)]
            mark = self._marks.get(node.input[0], "")
            self._marks[name] = _digest(mark, *wrote) if wrote else mark
            return
        if op == "Reshape":
            self._sign_reshape(name, node)
            return
        attributes = _attributes(node)
        if op == "Constant":
            text = ("constant", *attributes)
            self._exact[name] = _digest(*text)
            self._terms[name] = (self._exact[name],)
            return
        own = self.primitives.get(node.op_type.split("::")[-1])
        told = () if own is None else tuple(sorted(_text(a) for a in own.attribute if a.name in _TOLD))
        head = (op, *attributes, *told)
        by_terms = _digest(*head, *(self._joined(terms(one)) for one in node.input))
        if self.is_random(node):  # each draws its own numbers
            self._counts[by_terms] += 1
            head = (*head, str(self._counts[by_terms]))
            by_terms = _digest(*head, by_terms)
        self._exact[name] = _digest(*head, *(exact(one) for one in node.input))
        self._terms[name] = (by_terms,)
        added = node.input if op == "Add" else ()
        if op == "AddN" and self.op(node.input[0]) == "MakeTuple":
            added = self.nodes[node.input[0]].input
        found = tuple(t for one in added if not self._is_zero(one) for t in terms(one))
        if found and len(found) <= _MOST:
            self._terms[name] = found

    def _sign_reshape(self, name: str, node: Any) -> None:
        """Sign what only has another shape: of several in a row the compiler makes one, or none."""
        first = self._unshaped[name] = self._unshaped.get(node.input[0], node.input[0])
        shape = self._shape(name)
        self._exact[name], self._terms[name] = self.exact(first), self.terms(first)
        if shape != self._shape(first):
            self._exact[name] = _digest("Reshape", shape, self._exact[name])
            self._terms[name] = (_digest("Reshape", shape, self._joined(self._terms[name])),)

    def _shape(self, name: str) -> str:
        found = (
            [a.tensors for a in self.nodes[name].attribute if a.name == "shape"] if name in self.nodes else []
        )
        found += [value.tensor for value in self.graph.input if value.name == name]
        found += [[value] for value in self.graph.parameter if value.name == name]
        return str([list(one.dims) for tensors in found for one in tensors])

    def _joined(self, terms: tuple[str, ...]) -> str:
        return terms[0] if len(terms) == 1 else _digest("sum", *sorted(terms))

    def is_random(self, node: Any) -> bool:
        """Return whether a node draws random numbers."""
        found = self.primitives.get(node.op_type.split("::")[-1])
        return found is not None and any(a.name in _RANDOM for a in found.attribute)

    def _is_zero(self, name: str) -> bool:
        """Return whether a value is zeros that were only made because a tap keeps something alive."""
        node = self.nodes.get(name)
        if node is None:
            return False
        op = op_of(node)
        if op in (*_SAME, "Divs", "Muls", "Reshape", "Tile", "Transpose", "Neg"):
            return self._is_zero(node.input[0])
        if op == "Constant":
            return any(t.raw_data and not any(t.raw_data) for a in node.attribute for t in a.tensors)
        return op in ("ZerosLike", "ZerosLikeExt")


#: What tells two operators of one name apart, where it is no input of theirs.
_TOLD = frozenset(
    (
        "stride",
        "pad",
        "pad_mode",
        "dilation",
        "group",
        "kernel_size",
        "strides",
        "axis",
        "keep_prob",
        "out_channel",
    )
)


def op_of(node: Any) -> str:
    """Return the name of a node's operator."""
    return str(node.op_type.split("::")[-1].split(":")[0])


def _digest(*parts: str) -> str:
    return hashlib.md5("\0".join(parts).encode(), usedforsecurity=False).hexdigest()


def _text(attribute: Any) -> str:
    copy = type(attribute)()
    copy.CopyFrom(attribute)
    for one in (copy, *copy.values):
        for tensor in one.tensors:
            tensor.name = tensor.ref_key = ""  # addresses, where memory is shared
    return str(copy.SerializeToString(deterministic=True).hex())


def _attributes(node: Any) -> tuple[str, ...]:
    return tuple(_text(a) for a in node.attribute)
