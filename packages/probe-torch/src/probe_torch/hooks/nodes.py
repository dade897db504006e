"""Note the autograd edges of a call's inputs, and find and hook the nodes that made its outputs or use its inputs.

One hook on a node serves all the calls that have a part in it. Where a function is the last call of a module, both
end in the same node: the hook passes the gradients to both, one after the other. No code but Probe's runs in between,
so a gradient is described once for both.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from attrs import define, field
from probe_format.excerpts import unsignalled
from probe_format.values import ValuePath
from probe_runtime.collect import GradientTap, GradientTexts, guard
from probe_runtime.describe import RunError

from probe_torch.aside import apart

from .written_views import WrittenView

Found = Sequence[tuple[ValuePath, torch.Tensor]]

_functorch: Any = torch._C._functorch
#: Returns whether a transform of `torch.func` runs in this thread, which may have wrapped tensors. (Reading
#: the stack of transforms would create one in the thread, which torch then copies for each node of a graph.)
transforms: Callable[[], bool] = torch._C._are_functorch_transforms_active


@define
class InputEdges:
    """Hold the gradient edges of a call's inputs.

    since: autograd's sequence number at the entry; nodes that this thread makes later have this one or a higher one.
    batched: whether the call was made within a transform of `torch.func`.
    indexes: key of an input -> its index in ``paths``. The key is (node, output number), where its gradient goes, or
        the id of a leaf.
    paths: for each of these inputs, every place in the arguments where it is.
    views: id of an input that is a view -> its index in ``paths``, None if it needed no gradient; and the node of its
        base.
    """

    since: int
    batched: bool
    indexes: dict[Any, int] = field(factory=dict)
    paths: list[tuple[ValuePath, ...]] = field(factory=list)
    views: dict[int, tuple[int | None, Any]] = field(factory=dict)


def whole(tensors: Found) -> Found:
    """Return the tensors; for one that `torch.func.vmap` batches, the whole tensor, which autograd follows."""
    found = []
    for path, t in tensors:
        while _functorch.is_batchedtensor(t):
            t = _functorch.get_unwrapped(t)
        found.append((path, t))
    return found


Grads = tuple[torch.Tensor | None, ...]

#: Nodes to hook -> [(output number, path) of an output that it made], [(edge number, index of the input) that it uses].
Nodes = dict[Any, tuple[list[tuple[int, ValuePath]], list[tuple[int, int]]]]

_C: Any = torch._C
_base: Any = _C.TensorBase  # its methods are not patched, so a hook's own calls are not recorded
_no_functions: Any = _C.DisableTorchFunction
_AccumulateGrad = _C._functions.AccumulateGrad
_Cast = _C._functions.ToCopyBackward0
#: Returns the sequence number of the next node that this thread makes.
sequence: Callable[[], int] = _C._autograd._get_sequence_nr
_MAX_NODES = 200_000
_MAX_UNSURE = 1000  # a module may hold what the whole graph before it made
#: Under this key the hook is in the node's own table, so that it lives as long as the node.
_KEY = "probe_torch"


def add_consumers(
    inputs: InputEdges, nodes: Nodes
) -> tuple[dict[int, int], bool, dict[Any, dict[int, torch.dtype]], set[int]]:
    """Add to ``nodes`` the nodes made since the entry that have edges into the call's inputs, walking from ``nodes``.

    Returns for each input that is used the number of edges into it; whether any has several; the edges that end
    at a cast of an input and carry another dtype than the input: node -> {edge number: dtype of the input}; and the
    inputs of which nothing tells whether each of these edges is of this call.
    """
    indexes, since = inputs.indexes, inputs.since
    need: dict[int, int] = {}
    sums = False
    casts: dict[Any, dict[int, torch.dtype]] = {}
    if not indexes:
        return need, sums, casts, set()
    todo = list(nodes)
    visited: dict[Any, Any] = {None: None, **nodes}
    now = sequence()
    unsure: list[Any] = []
    for node in islice(todo, _MAX_NODES):  # which grows meanwhile
        if not since <= node._sequence_nr() < now:
            unsure += (node,)
            continue
        used: list[tuple[int, int]] = []
        for i, (following, nr) in enumerate(node.next_functions):
            kind = type(following)
            key: Any = id(following.variable) if kind is _AccumulateGrad else (following, nr)
            if kind is _Cast and key not in indexes and id(leaf := _cast_leaf(following)) in indexes:
                key = id(leaf)
                casts.setdefault(node, {})[i] = leaf.dtype
            if key in indexes:
                index = indexes[key]
                sums = sums or index in need
                need[index] = need[index] + 1 if index in need else 1
                used += ((i, index),)
            elif kind is not _AccumulateGrad and following not in visited:
                visited[following] = None
                todo += (following,)
        if used:
            nodes[node] = nodes[node][0] if node in nodes else [], used
    if todo[_MAX_NODES:]:
        raise RuntimeError(f"more than {_MAX_NODES} autograd nodes inside one call")
    return need, sums, casts, _add_of_threads(inputs, nodes, need, unsure, visited) if unsure else set()


def _add_of_threads(
    inputs: InputEdges, nodes: Nodes, need: dict[int, int], todo: list[Any], visited: Container[Any]
) -> set[int]:
    """Add the nodes from ``todo`` on that use inputs to ``nodes`` and ``need``, unless this thread may have made all.

    Return the indexes of these inputs. Sequence numbers are each thread's own: those of another thread tell nothing of
    the entry. In one thread a node has a higher number than what it uses, and a lower one than the next node will have:
    only where that does not hold is it sure that there was another.
    """
    indexes, now = inputs.indexes, sequence()
    passed = {key[0] for key in indexes if type(key) is tuple}  # older for sure, and so is all that they use
    todo = [node for node in todo if node not in passed]
    found: dict[Any, list[tuple[int, int]]] = {}
    others = False
    for node in islice(todo, _MAX_UNSURE):  # which grows meanwhile
        number = node._sequence_nr()
        others |= number >= now
        for i, (following, nr) in enumerate(node.next_functions):
            is_leaf = type(following) is _AccumulateGrad
            key: Any = id(following.variable) if is_leaf else (following, nr)
            if key in indexes:
                found.setdefault(node, []).append((i, indexes[key]))
            if following is None or is_leaf:
                continue
            others |= following._sequence_nr() >= number
            if following not in visited and following not in passed:
                passed.add(following)
                todo += (following,)
    for node, used in found.items() if others else ():
        nodes[node] = nodes[node][0] if node in nodes else [], used
        for _, index in used:
            need[index] = need.get(index, 0) + 1
    return {index for used in found.values() for _, index in used} if others else set()


def _cast_leaf(cast: Any) -> Any:
    """Return the leaf that autocast casts with this node; None for another cast.

    Autocast casts a parameter once for all calls that use it. The gradient that leaves this one cast is the sum over
    all of them, so what a single call sends back is what arrives there.
    """
    if not (_C._is_any_autocast_enabled() and torch.is_autocast_cache_enabled()):
        return None
    source = cast.next_functions[0][0]
    return source.variable if type(source) is _AccumulateGrad else None


@define
class NodeCall:
    """The part that one call has in a node.

    tap: takes the gradients.
    made, consumed, through: as `GradientTap.fire` has them.
    written: the views that were written in place.
    casts: edge number -> the dtype of an input that is cast there.
    """

    tap: GradientTap
    made: Sequence[tuple[int, ValuePath]]
    consumed: Sequence[tuple[int, int]]
    through: Sequence[tuple[int, int]] = ()
    written: Sequence[WrittenView] = ()
    casts: Mapping[int, torch.dtype] | None = None


@define(eq=False)
class _NodeHook:
    """The hook on one node. Nothing here may refer to the node, which owns the hook: cycles there leak.

    calls: those that have a part in the node; empty once the hook is removed.
    handle: removes the hook.
    """

    calls: list[NodeCall] = field(factory=list)
    handle: Any = None

    def __call__(self, grad_inputs: Grads, grad_outputs: Grads) -> None:
        texts: GradientTexts = {}
        try:
            with _no_functions():
                for c in self.calls:
                    given = grad_inputs if c.casts is None else _cast(grad_inputs, c.casts)
                    views = [v.parts(grad_outputs[0], given[0]) for v in c.written] if c.written else ()
                    c.tap.fire(given, grad_outputs, c.made, c.through, c.consumed, views, texts)
        except RunError as e:
            raise e.error from e
        except unsignalled(Exception) as e:
            guard.report_fault("a gradient", "its arrival at a node", e)

    def remove(self) -> None:
        self.calls = []
        self.handle.remove()


@apart
def _cast(grads: Grads, casts: Mapping[int, torch.dtype]) -> Grads:
    """Return the gradients that left a cast as those of its input."""
    with torch.no_grad():  # not by detach, which torch's older vmap has not
        return tuple(g if g is None or i not in casts else _base.to(g, casts[i]) for i, g in enumerate(grads))


def hook_node(node: Any, call: NodeCall) -> _NodeHook | None:
    """Tell ``call`` the gradients of a node in each backward pass. Return the hook where it is a new one."""
    table = node.metadata
    if _KEY in table and (calls := table[_KEY].calls):
        calls.append(call)
        return None
    table[_KEY] = hook = _NodeHook([call])
    hook.handle = node.register_hook(hook)
    return hook
