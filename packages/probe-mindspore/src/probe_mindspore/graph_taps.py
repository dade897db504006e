"""Cells inside compiled graphs (L0): GRAPH_MODE, and what `mindspore.jit` compiles under PyNative.

Nothing of a compiled graph runs in Python, so the graph itself tells (`graph_routes`): a tracked Cell is
compiled with taps around its construct (`graph_cells`), and what they say is recorded by the same recorder as
the calls of PyNative (`graph_calls`).
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import mindspore
from attrs import define
from probe_format.collector import Collector
from probe_format.plan import Plan
from probe_format.recorder import Leaf
from probe_format.select import NameFilter
from probe_format.tracked import ParameterEntry

from . import autograd, graph_cells, hostcall
from .arrivals import Arrivals
from .cells import CellTable
from .graph_calls import GraphCalls
from .graph_cells import tapped, watched_parameter
from .graph_compile import Compilations, api_module
from .graph_routes import Route, by_callbacks, listen

__all__ = ["BYTECODE", "NO_FILES", "GraphTaps", "graph_mode", "is_bytecode"]

#: Why Cells under @jit(capture_mode="bytecode") have no records of their own.
BYTECODE = (
    'compiled from bytecode: MindSpore reads no tap there; use @jit (capture_mode="ast") or GRAPH_MODE to see '
    "what is inside"
)
#: Why a graph has no records though its taps were compiled.
NO_FILES = (
    "this device has no host callbacks, so its graphs write files (ops.TensorDump); none of them came. Either no "
    "graph with Cells of the model ran, or MindSpore did not write"
)
_words: dict[Any, str] = {}


def graph_mode() -> bool:
    """Whether calling a Cell compiles it."""
    return bool(mindspore.get_context("mode") == mindspore.GRAPH_MODE)


def is_bytecode(cell: Any) -> bool:
    """Whether this Cell's construct is under @jit(capture_mode="bytecode")."""
    function = getattr(getattr(cell, "construct", None), "__func__", None)
    made_by = getattr(function, "__code__", None)
    return "pijit" in getattr(made_by, "co_filename", "")


@define(eq=False)
class _Arrived:
    """Parameters' gradients that PyNative hands out: kept where the parameter's Cell ran in a graph.

    entered: the Cells that did; None where every Cell of the table is in one.
    """

    collector: Collector
    entered: set[str] | None

    @property
    def plan(self) -> Plan:
        """What the step collects."""
        return self.collector.plan

    def parameter_gradient(self, entry: ParameterEntry, gradient: Any) -> None:
        """A gradient has arrived."""
        if self.entered is None or any(
            record.removesuffix(".parameters_grad") in self.entered for record, _ in entry.owners
        ):
            self.collector.parameter_gradient(entry, gradient)


class GraphTaps:
    """Records the Cells of a table when graphs run that were compiled while this was in place.

    route: how the graphs tell it (`graph_routes`).
    """

    def __init__(
        self,
        collector: Collector,
        leaf: Leaf,
        names: NameFilter,
        table: CellTable,
        route: Route | None = None,
    ) -> None:
        self._collector = collector
        self._calls = GraphCalls(collector, leaf, names, table)
        self._route = by_callbacks() if route is None else route
        self._listening = ExitStack()
        self._heard = False
        self._collected = 0

    @property
    def table(self) -> CellTable:
        """The Cells that are recorded."""
        return self._calls.table

    @table.setter
    def table(self, table: CellTable) -> None:
        self._calls.table = table

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """What is compiled while this is open has taps. Messages are heard until `close`."""
        calls, spool = self._calls, self._route.spool
        if not self._heard:
            self._heard = True
            self._listening.enter_context(listen(calls.listener()))
            hostcall.on_fault.append(calls.fault)
            self._listening.callback(hostcall.on_fault.remove, calls.fault)
        self._look()
        if spool is not None:
            spool.clear()
        if not graph_mode():  # the gradients of jitted pieces pass through PyNative on their way
            known = spool is None or self.table.part != "graph"  # with files, only afterwards
            arrived: Any = _Arrived(self._collector, calls.entered if known else None)
            arrivals = Arrivals(arrived, self.table)
            arrivals.hook()
            self._listening.callback(arrivals.remove)
        what = (self._route.key, frozenset((*calls.names, *calls.parameters)))
        word = _words.setdefault(what, f"probe{len(_words)}")
        compilations = Compilations(word, self._tapped, lambda: bool(graph_cells.compiled), self._refused)
        with compilations.in_place():
            try:
                yield
            finally:
                self.wait()
                if spool is not None and not self._collected:
                    self._collector.coverage.unseen("inside the graphs of this step", NO_FILES)

    def wait(self) -> None:
        """Until the graphs that were started have run, and all that they told is recorded."""
        api_module()._pynative_executor.sync()
        if self._route.spool is not None:
            self._collected += self._route.spool.collect()

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
                self._calls.names[id(entry.module)] = tuple(n for n in own if hasattr(entry.module, n))
        plan = self._collector.plan
        if plan.keep.parameters_grad and not plan.structure and graph_mode():
            self._calls.parameters = {id(e.parameter): e for e in self.table.parameters()}
        for path, cell in self.table.compiled.items():
            if is_bytecode(cell):
                self._collector.coverage.unseen(f"inside {path or 'the whole model'}", BYTECODE)

    @contextmanager
    def _tapped(self) -> Iterator[None]:
        graph_cells.compiled.clear()
        with ExitStack() as stack:
            for entry in self.table.entries.values():
                names = self._calls.names.get(id(entry.module))
                if names is not None:
                    stack.enter_context(tapped(entry.module, names, self._route))
            for key, owner in self._calls.parameters.items():
                handle = autograd.hook_tensor(owner.parameter, watched_parameter(key, self._route))
                if handle is not None:
                    stack.callback(handle.remove)
            yield

    def _refused(self, name: str, error: Exception) -> None:
        said = [line.strip("- ") for line in str(error).splitlines() if any(map(str.isalpha, line))]
        first = " ".join(said[:2])[:300]  # MindSpore's first line may be a heading
        why = f"MindSpore could not compile it with taps ({type(error).__name__}: {first}); it ran without"
        self._collector.coverage.unseen(f"inside the graph of {name}", why)
