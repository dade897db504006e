"""Compile a copy of each graph, with taps in it, and evaluate the copy beside each run of the user's graph.

While this is in place, each graph is compiled once more, also where it was compiled before: the key of the copy has a
word of Probe's, so that MindSpore takes it for another graph. The user runs their own graph, and the copy tells which
of that graph's values the taps would get (`replay_plan`). Only where that fails, the run may have taps (`fault`).

A graph that is compiled for another purpose than to run (`export`) has no copy, and no copy is stored by MindSpore's
compile cache (`compile_cache`).
"""

import importlib
import inspect
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial, wraps
from typing import Any

from attrs import define, field
from mindspore import nn
from mindspore._c_expression import GraphExecutor_
from probe_format.excerpts import unsignalled
from probe_runtime.collect import sheltered
from probe_runtime.patching import Function, Nested, listening, place

from probe_mindspore.hooks import autograd
from probe_mindspore.hooks.uncompiled_hooks import UncompiledHooks
from probe_mindspore.patching.compile_hook import API, compilation_replaced, executors

from . import compile_cache
from .copied_graph import CopiedGraph, Outcome
from .piece_gradients import UNCALLED, Called, PieceGradients, UndifferentiatedError, compiled
from .search import Extent, SearchResult, UntappableError, search

_seed = importlib.import_module("mindspore.common.seed")  # mindspore.common has a function of the same name
Region = Callable[[Any], AbstractContextManager[Any]]

_PYTHON = (
    "a part of the graph is Python that MindSpore does not compile (an asnumpy(), for one), and such a graph fails "
    "when it runs with taps; it ran without"
)
#: Key under which MindSpore stores a graph -> its copy with the taps of now.
_graphs: dict[Any, CopiedGraph | None] = {}
#: What was compiled -> (key, word of the taps) -> its copy; None where the compiler came to no Cell with taps.
_alike: weakref.WeakKeyDictionary[Any, dict[Any, CopiedGraph | None]] = weakref.WeakKeyDictionary()
#: What was compiled -> word of the taps -> what the search found; used when it is compiled for other arguments.
_found: weakref.WeakKeyDictionary[Any, dict[str, SearchResult]] = weakref.WeakKeyDictionary()


@define(eq=False)
class CopiedCompilations:
    """Compile a copy of each graph with as many taps as MindSpore can compile, and evaluate it beside the runs.

    word: the end of the keys of graphs with taps.
    tapped: a context in which compilation adds taps to the given extent.
    met: the ids of Cells whose taps the compiler has read; the compiler adds them.
    ran: called before each run of a graph that has a copy; returns what counts its outcome.
    fault: called with the copy and an exception that costs a run its records; returns whether to run with taps instead.
    wanted: see `replay_plan`.
    called: the latest call of a jitted piece.
    pieces: the jitted pieces whose gradients are waited for.
    hooks: the hooks on tensors that wait for these gradients.
    """

    word: str
    tapped: Region
    met: dict[int, None]
    ran: Callable[[str, SearchResult], Outcome]
    fault: Callable[[CopiedGraph, Exception], bool]
    wanted: frozenset[str]
    _now: list[tuple[Any, list[SearchResult]]] = field(factory=list)
    called: Called | None = None
    pieces: list[PieceGradients] = field(factory=list)
    hooks: UncompiledHooks = field(factory=UncompiledHooks)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Patch everything that compiles and runs graphs while open. Undone also when the block raises."""
        places = [place(API._JitExecutor, "compile", _JIT), place(API._CellGraphExecutor, "compile", _CELL)]
        places.append(place(API, "_real_phase", _PHASE))
        places.append(place(API._PyNativeExecutor, "grad_jit", _JIT_RUN))
        places.append(place(GraphExecutor_, "__call__", _CELL_RUN))
        for name in ("set_real_args", "generate_arguments_key"):  # the first of these reads the arguments
            places += [place(kind, name, _ARGUMENTS) for kind in executors(name)]
        with listening(_in_place, self, places), compilation_replaced(self._compile):
            yield

    def compile(self, what: Any, executor: Any, run: Callable[[], Any], keyed: Region) -> Any:
        """Compile a Cell or jitted function as without Probe, and a copy with taps. Return the key of the original.

        run: compiles as without Probe.
        keyed: makes a context in which what is compiled has a word more in its key.
        """
        answer = run()
        key = _key(answer)
        graphs = _alike.setdefault(what, {})
        if (key, self.word) not in graphs:
            graphs[key, self.word] = None  # should this fail
            copied = self._copied(what, executor, key, run, keyed)
            # What MindSpore notes on the Cell is the user's graph again, which may have another key now.
            answer = run()
            key = _key(answer)
            if copied is not None:
                copied.run = key
            graphs[key, self.word] = copied
        _graphs[key] = graphs[key, self.word]
        return answer

    def _copied(
        self, what: Any, executor: Any, key: Any, run: Callable[[], Any], keyed: Region
    ) -> CopiedGraph | None:
        results: list[SearchResult] = []
        self._now.append((what, results))
        seeds, began = dict(_seed._KERNEL_SEED), time.monotonic()
        try:
            with keyed(self.word), compile_cache.off():
                answer = run()
        finally:
            self._now.pop()
            _seed._KERNEL_SEED.clear()
            _seed._KERNEL_SEED.update(seeds)
        if not results or not (results[-1].met or results[-1].why):
            return None
        name = getattr(what, "__qualname__", None) or type(what).__name__
        seconds = time.monotonic() - began
        return CopiedGraph(name, executor, key, _key(answer), results[-1], seconds, self.wanted)

    def around(
        self, key: Any, inputs: Sequence[Any], run: Callable[[Any], Any], called: Called | None = None
    ) -> Any:
        """Run a graph, and its copy beside it.

        run: takes the key of the graph to run.
        called: the call, where the graph is that of a jitted piece.
        """
        graph = _graphs.get(key)
        if graph is None or self._now:
            return run(key)
        outcome = self.ran(graph.name, graph.found)
        begun = None
        if graph.found.extent and graph.found.met:
            try:
                begun = graph.begin(inputs)
            except unsignalled(Exception) as e:
                key = graph.tapped if self.fault(graph, e) else key
        out = run(key)
        if begun is not None:
            try:
                tokens = graph.end(begun, out, outcome)
                if called is not None and autograd.recording() and graph.found.extent is Extent.EVERYTHING:
                    self._differentiated(called, graph, out, begun, tokens, outcome)
            except unsignalled(Exception) as e:
                self.fault(graph, e)
            for one in (graph, *(piece.graph for piece in self.pieces)):
                one.drop_tapped()
        return out

    def _differentiated(
        self,
        called: Called,
        graph: CopiedGraph,
        out: Any,
        begun: Any,
        tokens: Sequence[int],
        outcome: Outcome,
    ) -> None:
        """Prepare to read the gradients inside a jitted piece that has run."""
        if called.what is None:
            raise UndifferentiatedError(UNCALLED)
        try:
            inputs = list(compiled(called, out, list(graph.executor.get_params(graph.run).values())))
        except unsignalled(Exception) as e:
            raise UndifferentiatedError(f"MindSpore did not compile them ({type(e).__name__})") from e
        taking = None if self.called is None else _graphs.get(self.called.key)
        if taking is None:
            raise UndifferentiatedError("its gradients could not be compiled")
        try:
            taking.planned()  # here, so that the reason is told where there can be no plan
        except unsignalled(Exception) as e:
            raise UndifferentiatedError(str(e) or type(e).__name__) from e
        self.ran(graph.name, taking.found)
        kept = begun[1].kept
        own = {name: kept["parameters"][name] for name in graph.planned().written}
        piece = PieceGradients(taking, [inputs[0], *kept["arguments"]], own, tokens, outcome)
        piece.watch(out, self.hooks)
        self.pieces.append(piece)

    def phase(self, real: Any, phase: Any, obj: Any) -> Any:
        """Return the key under which MindSpore stores a graph. real: the key without Probe."""
        ours = self._now and phase == obj.phase and not str(real).endswith(f".{self.word}")
        return f"{real}.{self.word}" if ours else real

    def reading(self) -> AbstractContextManager[Any]:
        """Return a context for reading a function's arguments: MindSpore reads Cells then, not as it compiles."""
        if not self._now:
            return nullcontext()
        before = _found.get(self._now[-1][0], {}).get(self.word)
        extent = Extent.EVERYTHING if before is None else before.extent
        return self.tapped(extent) if extent else nullcontext()

    def _compile(self, original: Function) -> Function:
        @wraps(original)
        def compile(executor: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._now:
                return original(executor, *args, **kwargs)
            what, results = self._now[-1]

            def with_taps(extent: Extent) -> Any:
                with self.tapped(extent) if extent else nullcontext():
                    done = original(executor, *args, **kwargs)
                if extent and _runs_python(executor, *args):
                    raise UntappableError(_PYTHON)
                return done

            alike = _found.setdefault(what, {})
            found = alike[self.word] = search(with_taps, self.met, alike.get(self.word))
            results.append(found)
            return found.answer

        return compile


def _key(answer: Any) -> Any:
    """Return the key of a graph. answer: what compiling it returned."""
    return answer[0] if isinstance(answer, tuple) else answer


_in_place: list[CopiedCompilations] = []
_nested = Nested()


def _what(executor: Any, args: Any, kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return (what is called, its arguments by position)."""
    kwargs = {name: value for name, value in kwargs.items() if name != "phase"}
    what = (
        executor.fn if executor.obj is None else executor.obj if isinstance(executor.obj, nn.Cell) else None
    )
    if kwargs:
        bound = inspect.signature(executor.fn).bind(*args, **kwargs)
        what, args = (None, ()) if bound.kwargs else (what, bound.args)
    return what, tuple(args)


@contextmanager
def _keyed(executor: Any, word: str) -> Iterator[None]:
    """Add a word to the key of each graph that this executor compiles while open."""
    before = executor._cell_cache_key_extend
    executor._cell_cache_key_extend = f"{before}.{word}"
    try:
        yield
    finally:
        executor._cell_cache_key_extend = before


def _jit(original: Function) -> Function:
    @wraps(original)
    def compile(executor: Any, *args: Any, **kwargs: Any) -> Any:
        if not _in_place or _nested.is_recorded(executor, compile) or not _to_run():
            return original(executor, *args, **kwargs)
        with _nested.call(executor, compile):
            what = executor.obj if executor.obj is not None else executor.fn
            run, now = partial(original, executor, *args, **kwargs), _in_place[-1]
            key = now.compile(what, executor._graph_executor, run, partial(_keyed, executor))
            now.called = Called(key, *_what(executor, args[1:], kwargs))
            return key

    return compile


def _cell(original: Function) -> Function:
    @wraps(original)
    def compile(executor: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        run = partial(original, executor, obj, *args, **kwargs)
        exported = kwargs.get("phase") != obj.phase
        if not _in_place or exported or _nested.is_recorded(obj, compile):
            return run()
        with _nested.call(obj, compile):
            return _in_place[-1].compile(obj, executor._graph_executor, run, nullcontext)

    return compile


def _arguments(original: Function) -> Function:
    @wraps(original)
    def read(executor: Any, *args: Any, **kwargs: Any) -> Any:
        with _in_place[-1].reading() if _in_place else nullcontext():
            return original(executor, *args, **kwargs)

    return read


def _phase(original: Function) -> Function:
    @wraps(original)
    def real_phase(phase: Any, obj: Any) -> Any:
        real = original(phase, obj)
        return _in_place[-1].phase(real, phase, obj) if _in_place else real

    return real_phase


def _jit_run(original: Function) -> Function:
    @wraps(original)
    def grad_jit(executor: Any, *inputs: Any) -> Any:
        called = _in_place[-1].called if _in_place else None
        if called is None:
            return original(executor, *inputs)

        def run(key: Any) -> Any:
            if key != called.key:
                if hasattr(executor, "set_jit_compile_phase"):
                    executor.set_jit_compile_phase(key)
                else:  # MindSpore 2.7
                    executor.set_jit_compile_status(False, key)
            return original(executor, *inputs)

        return _in_place[-1].around(called.key, inputs, run, called)

    return grad_jit


def _cell_run(original: Function) -> Function:
    @wraps(original)
    def call(executor: Any, inputs: Any, phase: Any) -> Any:
        run = partial(original, executor, inputs)
        return _in_place[-1].around(phase, inputs, run) if _in_place else run(phase)

    return call


_JIT, _CELL, _PHASE, _ARGUMENTS = (
    sheltered("a compilation", make) for make in (_jit, _cell, _phase, _arguments)
)
_JIT_RUN, _CELL_RUN = (sheltered("a compiled graph", make) for make in (_jit_run, _cell_run))


def _to_run() -> bool:
    """Return whether a jitted function is compiled because it was called, and not to be exported.

    Then, and only then, the nearest of MindSpore's modules among the callers is the one that compiles (`API`).
    """
    frame = sys._getframe(2)
    while frame.f_back is not None and not str(frame.f_globals.get("__name__")).startswith("mindspore."):
        frame = frame.f_back
    return frame.f_globals is vars(API)


def _runs_python(executor: Any, what: Any, args: Any, kwargs: Any, phase: Any, *more: Any) -> bool:
    """Return whether a graph that has just been compiled runs a part of itself in Python."""
    return b"PyExecute" in executor.get_func_graph_proto(phase, "anf_ir", False)
