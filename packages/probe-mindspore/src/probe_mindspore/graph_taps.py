"""Cells inside compiled graphs (L0): GRAPH_MODE, and what `mindspore.jit` compiles under PyNative.

Nothing of a compiled graph runs in Python, so the graph itself calls back (`hostcall`): a tracked Cell is
compiled with taps around its construct (`graph_cells`), and what they say is recorded by the same recorder as
the calls of PyNative.
"""

import itertools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import mindspore
from attrs import define, field
from probe_format.calls import Call
from probe_format.collector import Collector
from probe_format.coverage import Coverage
from probe_format.gradients import Emit, Gradients
from probe_format.recorder import Leaf, Recorder
from probe_format.select import NameFilter
from probe_format.tracked import ParameterEntry
from probe_format.tree import Path

from . import autograd, graph_cells, hostcall
from .cells import CellTable
from .graph_cells import Listener, listen, tapped, watched_parameter
from .graph_compile import Compilations, api_module
from .graph_values import DYNAMIC
from .hostcall import Message
from .plain import PlainTensor

__all__ = ["BYTECODE", "GraphTaps", "graph_mode", "is_bytecode"]

#: Why Cells under @jit(capture_mode="bytecode") have no records of their own.
BYTECODE = (
    'compiled from bytecode: MindSpore reads no tap there; use @jit (capture_mode="ast") or GRAPH_MODE to see '
    "what is inside"
)
Found = Sequence[tuple[Path, Any]]
_numbers = itertools.count(1)
_words: dict[frozenset[int], str] = {}


def graph_mode() -> bool:
    """Whether calling a Cell compiles it."""
    return bool(mindspore.get_context("mode") == mindspore.GRAPH_MODE)


def is_bytecode(cell: Any) -> bool:
    """Whether this Cell's construct is under @jit(capture_mode="bytecode")."""
    function = getattr(getattr(cell, "construct", None), "__func__", None)
    made_by = getattr(function, "__code__", None)
    return "pijit" in getattr(made_by, "co_filename", "")


@define(eq=False)
class _Open:
    """One call of a Cell in a graph that runs, until its gradients have arrived.

    inputs, outputs: the places in the records of the tensors that travelled, in their order. seen: how often
    the gradient of each has come.
    """

    call: Call
    inputs: list[Path] = field(factory=list)
    outputs: list[Path] = field(factory=list)
    emit: Emit | None = None
    seen: dict[tuple[str, int], int] = field(factory=dict)


class GraphTaps:
    """Records the Cells of a table when graphs run that were compiled while this was in place.

    Safe to use from the threads in which MindSpore runs its kernels. Numbers of calls are shared with the
    collector's own.
    """

    def __init__(
        self,
        collector: Collector,
        leaf: Leaf,
        names: NameFilter,
        table: CellTable,
        beside: Coverage | None = None,
    ) -> None:
        """beside: of the PyNative part of the step, whose report stays where this one is empty."""
        self._collector = collector
        self._coverages = [c for c in (collector.coverage, beside) if c is not None]
        self.table = table
        gradients = Gradients(_travelling, self._attach, _flows, lambda: -1)
        self._recorder = Recorder(
            collector.plan, collector.stream, leaf, collector.coverage, names, gradients, dict.items
        )
        self._recorder.counters = collector.recorder.counters
        self._calls: dict[int, _Open] = {}
        self._stack: list[int] = []
        self._ending: _Open | None = None
        self._lock = threading.RLock()
        self._parameters: dict[int, ParameterEntry] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        self._listening = ExitStack()
        self._heard = False
        self._warnings: dict[str, bool] = {}

    # -- in place -------------------------------------------------------------------------------------

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """What is compiled while this is open has taps. Messages are heard until `close`."""
        if not self._heard:
            self._heard = True
            self._listening.enter_context(
                listen(Listener(self._enter, self._leave, self._of_input, self._of_output, self._parameter))
            )
            hostcall.on_fault.append(self._fault)
            self._listening.callback(hostcall.on_fault.remove, self._fault)
        self._look()
        word = _words.setdefault(frozenset((*self._names, *self._parameters)), f"probe{len(_words)}")
        compilations = Compilations(word, self._tapped, graph_cells.compiled, self._ran, self._refused)
        with compilations.in_place():
            yield
        self._warn()

    def wait(self) -> None:
        """Return when the graphs that have begun are done: MindSpore runs them behind Python."""
        try:
            api_module()._pynative_executor.sync()
        except Exception as e:  # the run's own, and met again where it uses what was computed
            self._fault(e)

    def close(self) -> None:
        """Hear no more: graphs that have taps run on without a word."""
        self._listening.close()
        self._heard = False

    def _look(self) -> None:
        """What is tapped: the Cells of the table, and their trained parameters."""
        flavour = self.table.flavour
        for entry in self.table.entries.values():
            if entry.base and not isinstance(entry.module, flavour.containers):
                own = tuple(name for name, _ in flavour.parameters(entry.module))
                self._names[id(entry.module)] = tuple(n for n in own if hasattr(entry.module, n))
        plan = self._collector.plan
        if plan.keep.parameters_grad and not plan.structure:
            self._parameters = {id(e.parameter): e for e in self.table.parameters()}
        for path, cell in self.table.compiled.items():
            if is_bytecode(cell):
                self._unseen(f"inside {path or 'the whole model'}", BYTECODE)

    @contextmanager
    def _tapped(self) -> Iterator[None]:
        with ExitStack() as stack:
            for entry in self.table.entries.values():
                names = self._names.get(id(entry.module))
                if names is not None:
                    stack.enter_context(tapped(entry.module, names))
            # While PyNative records gradients, those of a jitted piece pass through it on their way (`Arrivals`);
            # else they are taken inside the graph, if at all.
            for key, owner in () if autograd.recording() else self._parameters.items():
                handle = autograd.hook_tensor(owner.parameter, watched_parameter(key))
                if handle is not None:
                    stack.callback(handle.remove)
            yield

    def _ran(self, cells: frozenset[int]) -> None:
        found = (self.table.entries.get(key) for key in cells)
        self.table.in_graphs.update(entry.base for entry in found if entry is not None)

    def _refused(self, name: str, why: str) -> None:
        self._unseen(f"inside the graph of {name}", why)
        self._warnings.setdefault(f"Probe: {name} has no records of what is inside its graph: {why}.", False)

    def _unseen(self, what: str, why: str) -> None:
        for coverage in self._coverages:
            coverage.unseen(what, why)

    def _warn(self) -> None:
        for text, said in self._warnings.items():
            self._warnings[text] = True
            if not said:
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    # -- messages -------------------------------------------------------------------------------------

    def _enter(self, message: Message) -> int:
        entry = self.table.entries.get(message.extra)
        if entry is None or not self._collector.stream.on:
            return 0
        with self._lock:
            entry.called = True
            args, kwargs, parameters = message.value
            own = dict(zip(self._names[message.extra], parameters, strict=True))
            recorder = self._recorder
            recorder.where.stack[:] = [
                (o.call.name, o.call.backward) for o in map(self._calls.get, self._stack) if o
            ]
            self._note_dynamic(entry.base, (args, kwargs))
            call = recorder.begin(entry.base, args, kwargs, own)
            if call is None:
                return 0
            number = next(_numbers) % (2**31 - 1)
            state = self._calls[number] = _Open(call)
            state.inputs = [] if call.entry is None else list(call.entry)
            self._stack.append(number)
            return number

    def _leave(self, message: Message) -> None:
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

    def _attach(self, entry: Any, outputs: Found, keep: Callable[[Any], None], emit: Emit) -> Sequence[Any]:
        state = self._ending
        assert state is not None
        state.outputs = _travelling(outputs)
        state.emit = emit
        return ()

    def _of_input(self, message: Message) -> None:
        self._gradient(message, "input")

    def _of_output(self, message: Message) -> None:
        self._gradient(message, "output")

    def _gradient(self, message: Message, side: str) -> None:
        with self._lock:
            state = self._calls.get(message.token)
            if state is None or state.emit is None:
                return
            paths = state.inputs if side == "input" else state.outputs
            number = state.seen.get((side, message.place), 0)
            state.seen[side, message.place] = number + 1
            found = [(paths[message.place], message.value)]
            of_outputs, of_inputs = (found, []) if side == "output" else ([], found)
            state.emit(number, of_outputs, of_inputs, False)

    def _parameter(self, message: Message) -> None:
        entry = self._parameters.get(message.extra)
        if entry is not None:
            with self._lock:
                self._collector.parameter_gradient(entry, message.value)

    def _note_dynamic(self, base: str, value: Any) -> None:
        if isinstance(value, PlainTensor) and value.reason == DYNAMIC:
            self._collector.coverage.unseen(f"tensors of {base}", DYNAMIC)
        elif isinstance(value, dict):
            self._note_dynamic(base, list(value.values()))
        elif isinstance(value, (list, tuple)):
            for item in value:
                self._note_dynamic(base, item)

    def _fault(self, error: Exception) -> None:
        self._collector.stream.fault("a compiled graph", "a message of it", error)


def _travelling(found: Found) -> list[Path]:
    """The places of the tensors that came with their elements, in their order."""
    return [path for path, t in found if isinstance(t, PlainTensor) and t.data is not None and t.data.size]


def _flows(outputs: Found) -> bool:
    return any("Float" in t.dtype or "Complex" in t.dtype for _, t in outputs)
