"""Tap the gradients of a call's inputs and outputs without inserting anything in the autograd graph.

MindSpore's own backward hooks insert an identity node before and after a Cell: gradients are then summed in another
order, and the bits of the run change. Here, as in probe-torch, the edges of a call's inputs are stored when it is
entered. When it is over the graph is walked from its outputs back to what is older than the call, and a hook is put
on each node that has an edge into an input, and on each node that made an output. The sum of what those edges carry
is the call's own contribution to the gradient of that input.

MindSpore 2.7 does not show its graph: there `tensor_hooks` hooks the tensors themselves, and the gradient recorded
for an input is that of the tensor, from all its users (`OWN` is False).
"""

import threading
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

from attrs import evolve
from probe_format.excerpts import unsignalled
from probe_format.journal import Slot
from probe_format.values import ValuePath
from probe_runtime.collect import UNTOLD, Autograd, Emit, GradientTap, guard, guarded, untold
from probe_runtime.describe import RunError

from probe_mindspore.tensors.tensor_view import TensorView, view_of

from . import autograd, tensor_hooks
from .autograd import Handle, recording, takes_gradient
from .nodes import TOO_FEW, HookedNode, InputEdges, InputGradients, add_consumers, split_shares
from .uncompiled_hooks import UncompiledHooks

#: Whether the gradient given for an input is the call's own contribution, not that of all the tensor's users.
OWN = autograd.GRAPH
WHY_NOT_OWN = (
    "this MindSpore does not show its autograd graph (2.8 and later do): what is given for an input is the "
    "gradient of the whole tensor, from all its users"
)
WHY_NO_BEGINNING = (
    "a Cell that is given to mindspore.grad, value_and_grad or recompute itself begins to record gradients inside its "
    "own call, and this MindSpore does not show its autograd graph (2.8 and later do); give a function that calls it"
)

Tensor = Any
Grads = tuple[Tensor | None, ...]


class _Beginning(threading.local):
    cell = False


_beginning = _Beginning()


def begins(cell: Any) -> bool:
    """Return whether MindSpore begins to record gradients inside the next call of this Cell.

    It does so for a Cell that is itself given to `mindspore.grad` or `mindspore.recompute`. The inputs have no edges
    before such a call, so the next `enter` leaves them to `attach`.
    """
    _beginning.cell = bool(getattr(cell, "requires_grad", False)) and not autograd.grad_flag()
    return _beginning.cell


def enter(tensors: Sequence[tuple[ValuePath, Tensor]], positional: int = 0) -> InputEdges | None:
    """Return the edges of a call's inputs, or None when no gradients are being recorded.

    tensors: (path in the arguments, tensor); keyword arguments come last.
    positional: the number of arguments without a keyword.
    """
    late, _beginning.cell = _beginning.cell, False
    if not recording():
        return InputEdges(-1, positional, late=tensors) if late and OWN else None
    if not OWN:
        return InputEdges(0, hooks=tensor_hooks.enter(tensors))
    inputs = InputEdges(autograd.sequence(), positional)
    inputs.add(tensors)
    return inputs


def attach(
    inputs: InputEdges,
    outputs: Sequence[tuple[ValuePath, Tensor]],
    keep: Callable[[GradientTap], None],
    emit: Emit,
) -> Sequence[Any]:
    """Hook the graph between the inputs and the outputs of a call. Return the handles of the hooks.

    outputs: (path in the outputs, tensor).
    keep: called with the tap if a backward pass may end before all parts of a sum have come.
    emit: called with the gradients when they have come.
    """
    late, inputs.late = inputs.late, None
    if late is not None:
        inputs.add(late)
    if inputs.hooks is not None:
        return _hook_tensors(inputs.hooks, outputs, emit)
    out = _Outputs(inputs.edges, outputs)
    nodes, leaves = out.nodes, out.leaves
    used = add_consumers(inputs, nodes)
    out.pass_through(used)
    paths = split_shares(inputs, nodes)
    need = [0] * len(paths)
    for each in nodes.values():
        for _, index in (*each.consumed, *each.passed_through):
            need[index] += 1
    several: Sequence[ValuePath] = ()
    if len(nodes) + len(leaves) > 1:  # else all gradients of a pass come at once
        several = [*(path for each in nodes.values() for _, path in each.made), *(leaf[0] for leaf in leaves)]
    tap = GradientTap(_AUTOGRAD, emit, paths, need, several, *untold(out.places, out.passed_on, used))
    handles: list[Any] = out.hook_leaves(tap, used, need)
    if need and max(need) > 1:
        keep(tap)
    hooks = []
    for each in nodes.values():
        hook = partial(_arrived, tap, each.made, each.passed_through, each.consumed, each.edges, each.later)
        hooks.append(each.node.register_hook(hook))
    if hooks:
        handles.append(autograd.NodeHooks(hooks))
    return handles


def _hook_tensors(
    hooks: tensor_hooks.InputHooks, outputs: Sequence[tuple[ValuePath, Tensor]], emit: Emit
) -> Sequence[Any]:
    """Hook the tensors of a call themselves, as `attach` does where MindSpore does not show its graph."""
    slots = [("i", *path) for path, t in outputs if takes_gradient(t)]
    slots += [("o", *path) for places in hooks.inputs for path in places.given]
    unknown: set[Any] = set()
    return tensor_hooks.attach(hooks, outputs, partial(_emit, emit, slots, unknown, set()), unknown)


class _Outputs:
    """Hold the outputs of a call, as autograd's graph has them.

    nodes: the nodes that made outputs, by their keys.
    leaves: (path, tensor, its index among the inputs or None) of each output that no node made.
    passed_on: (key of a node, its output number) of an output that is an input, unchanged -> the input's index.
    places: (key of a node, its output number) of every different output -> its paths.
    """

    __slots__ = ("leaves", "nodes", "passed_on", "places")

    def __init__(
        self, edges: dict[tuple[Any, int], int], outputs: Sequence[tuple[ValuePath, Tensor]]
    ) -> None:
        self.nodes: dict[Any, HookedNode] = {}
        self.leaves: list[tuple[ValuePath, Tensor, int | None]] = []
        self.passed_on: dict[tuple[Any, int], int] = {}
        self.places: dict[tuple[Any, int], list[ValuePath]] = {}
        for path, t in outputs:
            if not takes_gradient(t):
                continue
            node, nr = t._grad_node, t._output_index
            number = autograd.key(node)
            index = edges.get((number, nr))
            self.places.setdefault((number, nr), []).append(path)
            if index is not None:
                self.passed_on[number, nr] = index
            if node._sequence_nr() == autograd.LEAF:
                self.leaves.append((path, t, index))
                continue
            if number not in self.nodes:
                self.nodes[number] = HookedNode(node)
            self.nodes[number].made.append((nr, path))

    def pass_through(self, used: set[int]) -> None:
        """Note at the nodes the inputs that the call only returns.

        An input may be used by the call and also returned. The gradient that comes through the returned tensor cannot
        be separated from what its other users send, so only the share of the uses is recorded. For an input that the
        call only returns, the tensor's whole gradient is recorded.

        used: the indexes of the inputs that the call uses.
        """
        for (number, nr), index in self.passed_on.items():
            if index not in used and number in self.nodes:
                self.nodes[number].passed_through.append((nr, index))

    def hook_leaves(self, tap: GradientTap, used: set[int], need: list[int]) -> list[Any]:
        """Hook the leaves themselves, as their nodes call no hooks. Return the handles.

        used: the indexes of inputs that the call uses; one that it only returns has its share counted in ``need``.
        """
        handles: list[Any] = []
        for path, t, index in self.leaves:
            if index is not None and index not in used:
                need[index] += 1
            else:
                index = None
            hook = guarded("a leaf", "its gradient's arrival", _leaf_hook(tap, path, index))
            off = _LEAVES.add(partial(autograd.hook_tensor, t, hook))
            if off is not None:
                handles.append(Handle(off))
        return handles


def watch(parameter: Tensor, arrived: Callable[[Tensor], None]) -> Handle | None:
    """Call ``arrived(gradient)`` once in each backward pass that computes this parameter's gradient.

    The gradient is then complete, the sum over all uses. Returns None if the parameter takes no gradient.
    """

    def hook(gradient: Tensor | None) -> None:
        if gradient is not None:
            arrived(gradient)

    return autograd.hook_tensor(parameter, guarded("a parameter", "its gradient's arrival", hook))


def _arrived(
    tap: GradientTap,
    made: Sequence[tuple[int, ValuePath]],
    through: Sequence[tuple[int, int]],
    consumed: Sequence[tuple[int, int]],
    edges: int,
    later: InputGradients | None,
    grad_inputs: Grads,
    grad_outputs: Grads,
) -> None:
    """Take the gradients of a node. Nothing here may refer to the node, which owns the hook: such a cycle leaks.

    made, through, consumed, edges, later: the fields of the node's `HookedNode`.
    """
    try:
        if later is not None:
            consumed = later.of(len(grad_inputs))
        elif consumed and len(grad_inputs) != edges:
            raise LookupError(TOO_FEW)
        tap.fire(grad_inputs, grad_outputs, made, through, consumed)
    except RunError as e:
        raise e.error from e
    except unsignalled(Exception) as e:
        guard.report_fault("a gradient", "its arrival at a node", e)


def _emit(
    emit: Emit,
    slots: Sequence[Slot],
    unknown: Container[ValuePath],
    told: set[int],
    number: int,
    made: list[tuple[ValuePath, Any]],
    given: list[tuple[Sequence[ValuePath], Any]],
    partial_sum: bool,
) -> None:
    """Hand the gradients on to ``emit``. The hook itself has no `try`, since the compiler may read it and would stop.

    slots: all slots that gradients of the call fill; each pass lists once those that still wait.
    unknown: the paths of outputs whose share of a gradient nothing tells (`UNTOLD`).
    told: the numbers of the passes that have listed the slots that wait.
    """
    waiting: Sequence[Slot] = ()
    if number not in told:
        told.add(number)
        here = {("i", *path) for path, _ in made} | {("o", *path) for paths, _ in given for path in paths}
        waiting = [slot for slot in slots if tuple(slot) not in here]
    made = [(path, _untold(g) if path in unknown else g) for path, g in made]
    try:
        emit(number, made, given, partial_sum, waiting, {})
    except RunError as e:
        raise e.error from e


def _leaf_hook(tap: GradientTap, path: ValuePath, index: int | None) -> Callable[[Tensor | None], None]:
    """Return a hook for a leaf tensor. It records the first backward pass alone: later ones belong to later calls."""
    first: list[int] = []

    def hook(gradient: Tensor | None) -> None:
        number = autograd.backward_pass()
        if gradient is None or (first and first[0] != number):
            return
        first[:] = [number]
        tap.fire((), (gradient,), [(0, path)], () if index is None else [(0, index)])

    return hook


def _untold(g: Tensor) -> TensorView:
    return evolve(view_of(g), data=None, reason=UNTOLD)


_LEAVES = UncompiledHooks()
_AUTOGRAD = Autograd(autograd.backward_pass, autograd.add, _untold)
