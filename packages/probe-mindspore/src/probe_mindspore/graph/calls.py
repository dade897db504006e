"""Record the calls of Cells inside compiled graphs, and their gradients, from the messages of the graphs' taps."""

import itertools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from attrs import define, field
from probe_format.journal import Slot
from probe_format.values import ValuePath
from probe_runtime.collect import Call, Collector, Emit, Gradients, Recorder, TrackedParameter
from probe_runtime.describe import Leaf
from probe_runtime.select import NameFilter

from probe_mindspore.hooks.modules import CellTable
from probe_mindspore.tensors.tensor_view import TensorView, views_in

from .host_callback import Message
from .value_layouts import DYNAMIC

PathTensors = Sequence[tuple[ValuePath, Any]]
_numbers = itertools.count(1)


@define(eq=False)
class _OpenCall:
    """Hold one call of a Cell in a running graph, until its gradients have come.

    inputs, outputs: the paths in the record of its tensors, in order; None for one that was sent without elements.
    emit: records a gradient; None until the call is over, or if it has none.
    seen: (side, number of the tensor) -> how many gradients have come for it.
    over: whether the call has returned.
    early: gradients that came before the call was over, as those of constants may.
    told: the backward passes for which `waiting` has told the slots.
    """

    call: Call
    inputs: list[ValuePath | None] = field(factory=list)
    outputs: list[ValuePath | None] = field(factory=list)
    emit: Emit | None = None
    seen: dict[tuple[str, int], int] = field(factory=dict)
    over: bool = False
    early: list[tuple[Message, str]] = field(factory=list)
    told: set[int] = field(factory=set)

    def waiting(self, number: int, side: str, path: ValuePath) -> list[Slot]:
        """Return the other slots that backward pass ``number`` fills, with its first gradient; later none."""
        if number in self.told:
            return []
        self.told.add(number)
        here = ("i" if side == "output" else "o", *path)
        slots = [("i", *each) for each in self.outputs if each is not None]
        slots += [("o", *each) for each in self.inputs if each is not None]
        return [slot for slot in slots if slot != here]


class GraphCalls:
    """Record the calls of a table's Cells from the messages of graphs.

    Safe to use from the threads in which MindSpore runs its kernels. Calls are numbered together with those of the
    collector.

    names: id of a Cell -> the attributes that hold its parameters.
    parameters: id -> each parameter whose gradient graphs send.
    """

    def __init__(self, collector: Collector, leaf: Leaf, names: NameFilter, table: CellTable) -> None:
        self._collector = collector
        self.table = table
        this = weakref.proxy(self)  # the recorder is ours, and would own us
        attach: Any = lambda *about: this._attach(*about)  # noqa: E731
        gradients = Gradients(lambda inputs, _: _places(inputs), attach, _flows, lambda: -1)
        eager, plan = collector.recorder, collector.plan
        self._recorder = Recorder(
            plan, collector.stream, leaf, collector.coverage, names, gradients, dict.items, eager.collectives
        )
        self._recorder.alarm = self._recorder.backward.alarm = None  # the dump is looked at, later
        self._recorder.calls.go_on(eager.calls)
        self._calls: dict[int, _OpenCall] = {}
        self._stack: list[int] = []
        self._ending: _OpenCall | None = None
        self._lock = threading.RLock()
        self.parameters: dict[int, TrackedParameter] = {}
        self.names: dict[int, tuple[str, ...]] = {}

    def fault(self, error: Exception) -> None:
        """Report an exception that handling a message raised."""
        self._collector.stream.fault("a compiled graph", "a message of it", error)

    def enter(self, message: Message) -> int:
        """Begin a call from (args, kwargs, parameters). Return its number, the token of the call's later messages."""
        entry = self.table.entries.get(message.extra)
        if entry is None or not self._collector.stream.on:
            return 0
        with self._lock:
            entry.called = True
            args, kwargs, parameters = message.value
            own = dict(zip(self.names[message.extra], parameters, strict=True))
            recorder = self._recorder
            running = filter(None, map(self._calls.get, self._stack))
            recorder.thread.stack[:] = [(each.call.name, each.call.backward) for each in running]
            if any(view.reason == DYNAMIC for _, view in views_in((args, kwargs))):
                self._collector.coverage.unseen(f"tensors of {entry.base}", DYNAMIC)
            call = recorder.begin(entry.base, args, kwargs, own)
            if call is None:
                return 0
            number = next(_numbers) % (2**31 - 1)
            state = self._calls[number] = _OpenCall(call)
            state.inputs = [] if call.edges is None else list(call.edges)
            self._stack.append(number)
            return number

    def leave(self, message: Message) -> None:
        """End a call by what it returned."""
        with self._lock:
            state = self._calls.get(message.token)
            if state is None:
                return
            if message.token in self._stack:
                del self._stack[self._stack.index(message.token) :]
            self._ending = state
            try:
                self._recorder.end(state.call, message.value)
            finally:
                self._ending = None
            state.over = True
            early, state.early = state.early, []
            for gradient in early:
                self._gradient(*gradient)

    def _attach(self, entry: Any, outputs: PathTensors, keep: Any, emit: Emit) -> Sequence[Any]:
        state = self._ending
        assert state is not None
        state.outputs = _places(outputs)
        state.emit = emit
        return ()

    def of_input(self, message: Message) -> None:
        """Record the gradient of an input."""
        self._gradient(message, "input")

    def of_output(self, message: Message) -> None:
        """Record the gradient of an output."""
        self._gradient(message, "output")

    def _gradient(self, message: Message, side: str) -> None:
        with self._lock:
            state = self._calls.get(message.token)
            if state is None or (state.emit is None and state.over):
                return
            if state.emit is None:
                state.early.append((message, side))
                return
            paths = state.inputs if side == "input" else state.outputs
            number = state.seen.get((side, message.place), 0)
            state.seen[side, message.place] = number + 1
            path = paths[message.place]
            if path is None:
                return
            waiting = state.waiting(number, side, path)
            if side == "output":
                state.emit(number, [(path, message.value)], [], False, waiting, {})
            else:
                state.emit(number, [], [((path,), message.value)], False, waiting, {})

    def parameter(self, message: Message) -> None:
        """Record the gradient of a parameter."""
        entry = self.parameters.get(message.extra)
        if entry is not None:
            with self._lock:
                self._collector.parameter_gradient(entry, message.value)


def _places(found: PathTensors) -> list[ValuePath | None]:
    """Return the paths of the tensors, in order; None for one that came without its elements."""
    views = [(path, t) for path, t in found if isinstance(t, TensorView)]
    return [path if t.reason != DYNAMIC and all(t.shape) else None for path, t in views]


def _flows(outputs: PathTensors) -> bool:
    return any("Float" in t.dtype or "Complex" in t.dtype for _, t in outputs)
