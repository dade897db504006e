"""Record Cells inside compiled graphs (L0), in GRAPH_MODE and in what `mindspore.jit` compiles under PyNative.

A compiled graph runs no Python, so the graph itself sends messages (`routes`): a tracked Cell is compiled with taps
around its construct (`tapped_cell`), and their messages are recorded by the same recorder as PyNative's calls
(`calls`).
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import mindspore
from probe_format.excerpts import unsignalled
from probe_format.write import Coverage
from probe_runtime.collect import Collector
from probe_runtime.describe import Leaf
from probe_runtime.notice import notice
from probe_runtime.patching import Held
from probe_runtime.select import NameFilter

from probe_mindspore.hooks import autograd
from probe_mindspore.hooks.modules import CellTable, is_bytecode
from probe_mindspore.hooks.uncompiled_hooks import UncompiledHooks
from probe_mindspore.patching.compile_hook import resolved_names

from . import tapped_cell
from .calls import GraphCalls
from .compilation import CopiedCompilations
from .copied_graph import CopiedGraph, Outcome
from .grad_operations import watched_grads
from .piece_gradients import PieceGradients, UndifferentiatedError
from .replay_plan import UncopiedError
from .routes import listen, route
from .search import Extent, SearchResult, UntappableError
from .tapped_cell import is_hooked, not_recomputed, tapped, without_recompute

#: Why Cells under @jit(capture_mode="bytecode") have no records of their own.
BYTECODE = (
    "captured from bytecode: any tap there changes the order in which MindSpore adds gradients up, and so their bits "
    '(docs/bytecode.md); use @jit (capture_mode="ast") or GRAPH_MODE to see what is inside'
)
#: Why the gradients of parameters that a graph takes have no record.
UNKNOWN = (
    "MindSpore does not tell whose gradients the graph takes, and more than one list of parameters (or none that "
    "the source names) has their shapes"
)
#: Why a Cell with hooks has no records where it runs in a graph.
HOOKED = (
    "it has forward or backward hooks, which MindSpore would call otherwise around taps in a graph; the Cells inside "
    "and around it are recorded"
)
_RISKED = "it ran with taps, as graph_taps says, and its last bits may be others than without"
_words: dict[Any, str] = {}


def graph_mode() -> bool:
    """Return whether MindSpore is in GRAPH_MODE, where calling a Cell compiles it."""
    return bool(mindspore.get_context("mode") == mindspore.GRAPH_MODE)


class GraphTaps:
    """Record the Cells of a table whenever a graph runs that was compiled while this was in place."""

    def __init__(
        self,
        collector: Collector,
        leaf: Leaf,
        names: NameFilter,
        table: CellTable,
        beside: Coverage | None = None,
        always: bool = False,
    ) -> None:
        """Prepare to tap the Cells of ``table``.

        beside: the coverage of the step's PyNative part, whose report is kept where this one is empty.
        always: whether a graph without a copy is to run with taps.
        """
        self._collector = collector
        self._coverages = [c for c in (collector.coverage, beside) if c is not None]
        self.table = table
        self._leaf = leaf
        self._calls = GraphCalls(collector, leaf, names, table)
        self._listening: Held | None = None
        self._warnings: dict[str, bool] = {}
        self._always = always
        self._outcomes: dict[str, Outcome] = {}
        self._pieces: list[PieceGradients] = []
        self._hooks = UncompiledHooks()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Compile with taps while open. Messages are received until `close`."""
        calls = self._calls
        if self._listening is None:
            self._listening = listen(calls)
        self._choose()
        wanted = self._wanted()
        what = wanted, frozenset((*calls.names, *calls.parameters))
        word = _words.setdefault(what, f"probe{len(_words)}")
        compilations = CopiedCompilations(
            word, self._tapped, tapped_cell.compiled, self._ran, self._fault, wanted
        )
        compilations.pieces, compilations.hooks = self._pieces, self._hooks
        with compilations.in_place():
            yield
        self._warn()

    def wait(self) -> None:
        """Wait until the graphs that have begun are done: MindSpore runs them asynchronously."""
        try:
            autograd.wait()
        except unsignalled(Exception) as e:  # of the run itself, which may not raise it again
            self._leaf.met(e)
        for piece in self._pieces:
            piece.flush()
        for name, found in self._outcomes.items():
            if found.differs:
                why = f"its copy gave others ({', '.join(found.differs)}): its records are those of the copy"
                self._unseen(f"bits of the graph of {name}", why)
        names = {key: entry.base for key, entry in self.table.entries.items()}
        self._collector.coverage.graphs |= {name: found.json(names) for name, found in self._outcomes.items()}

    def close(self) -> None:
        """Stop receiving messages. Graphs with taps may still run; their messages are dropped."""
        self._hooks.remove()
        if self._listening is not None:
            self._listening.undo()
            self._listening = None

    def _choose(self) -> None:
        """Choose what to tap: the Cells of the table, and their trained parameters."""
        module_kind = self.table.module_kind
        for entry in self.table.entries.values():
            called = entry.base and not isinstance(entry.module, module_kind.containers)
            if called and not is_hooked(entry.module):
                own = tuple(name for name, _ in module_kind.parameters(entry.module))
                self._calls.names[id(entry.module)] = tuple(n for n in own if hasattr(entry.module, n))
        if self._collector.plan.parameters_grad:
            self._calls.parameters = {id(e.parameter): e for e in self.table.parameters()}
        for path, cell in self.table.compiled.items():
            if is_bytecode(cell):
                self._unseen(f"inside {path or 'the whole model'}", BYTECODE)

    @contextmanager
    def _tapped(self, extent: Extent) -> Iterator[None]:
        modules = [entry.module for entry in self.table.entries.values()]
        with ExitStack() as stack, resolved_names(not_recomputed), without_recompute(modules):
            gradients = extent is Extent.EVERYTHING and not autograd.recording()
            for key, names in self._calls.names.items():
                stack.enter_context(tapped(self.table.entries[key].module, names, route(), gradients))
            # While PyNative records gradients, `ParameterGradients` sees those of a jitted piece as well;
            # otherwise they are taken inside the graph, if at all.
            if extent >= Extent.PARAMETERS and not autograd.recording():
                keys = {key: key for key in self._calls.parameters}
                unknown = partial(self._unseen, "gradients of parameters that a graph takes", UNKNOWN)
                stack.enter_context(watched_grads(keys, route(), unknown))
            yield

    def _ran(self, name: str, found: SearchResult) -> Outcome:
        """Report what has no taps in a graph that runs. Return what counts how its copies compare."""
        elsewhere = self.table.elsewhere
        for tracked in self.table.entries.values():
            base = tracked.base
            if base and base not in elsewhere and not tracked.called and is_hooked(tracked.module):
                tracked.called = True
                self._collector.coverage.unseen(base, HOOKED)
        part = bool(found.extent and found.met)
        if found.why is not None:
            what = f"{'gradients ' * part}inside the graph of {name}"
            self._unseen(what, _why(found.why))
            told = "part" if part else "nothing"
            warning = f"Probe recorded {told} of the graph of {name}: {_why(found.why)}. "
            self._warnings.setdefault(warning + "The report's not_seen names what has no records.", False)
        for key in found.met:
            entry = self.table.entries.get(key)
            if entry is None:
                continue
            if part:
                self.table.in_graphs.add(entry.base)
            else:
                entry.called = True
            if found.why is not None:
                self._unseen(f"{'gradients of ' * part}{entry.base}", _why(found.why))
        if part and found.extent < Extent.PARAMETERS:
            self._unseen(f"gradients of parameters in the graph of {name}", _why(found.why))
        return self._outcomes.setdefault(name, Outcome())

    def _wanted(self) -> frozenset[str]:
        """Return the names of the taps whose values are recorded."""
        keep, structure = self._collector.plan.keep, self._collector.plan.structure
        taps = {
            "enter": keep.input or keep.parameters,
            "leave": keep.output,
            "of_input": keep.backward_output,
            "of_output": keep.backward_input,
            "parameter": True,
        }
        return frozenset(name for name, wanted in taps.items() if wanted and not structure)

    def _fault(self, graph: CopiedGraph, error: Exception) -> bool:
        """Note that there is no copy of a graph's run. Return whether the run is to have taps then."""
        why = (
            str(error)
            if isinstance(error, UntappableError)
            else f"its copy failed ({type(error).__name__}: {error})"
        )
        told = self._always and isinstance(error, UncopiedError)
        text = f"{why}; " + (_RISKED if told else "it ran as it is, without records")
        lost = "gradients " if isinstance(error, UndifferentiatedError) else ""
        self._unseen(f"{'bits of' if told else lost + 'inside'} the graph of {graph.name}", text)
        for entry in () if told else filter(None, map(self.table.entries.get, graph.found.met)):
            entry.called = True
            self._unseen(f"{lost}of {entry.base}" if lost else entry.base, text)
        self._warnings.setdefault(f"Probe: the graph of {graph.name}: {text}", False)
        return told

    def _unseen(self, what: str, why: str) -> None:
        for coverage in self._coverages:
            coverage.unseen(what, why)

    def _warn(self) -> None:
        for text, was_given in self._warnings.items():
            self._warnings[text] = True
            if not was_given:
                notice(text)


def _why(error: Exception | None) -> str:
    if isinstance(error, UntappableError):
        return str(error)
    lines = [line.strip("- ") for line in str(error).splitlines() if any(map(str.isalpha, line))]
    first = " ".join(lines[:2])[:300]  # the first line may be a heading
    return f"MindSpore could not compile it with taps ({type(error).__name__}: {first}); it ran without"
