"""Compile graphs with taps, under keys of their own, so that the user's graphs stay as they are.

While this is in place, Probe adds a word to the keys under which MindSpore stores compiled graphs. So a graph that
was compiled before is compiled once more, with taps. Afterwards the user's own graph is used again, so that a dump
costs nothing when it is over. Internal state of a graph is not carried over: random operators (dropout) begin anew in
each graph (measured: nn.Dropout on 2.7.0 and 2.10.0). A run with dropout has the same bits as without Probe when all
its steps, or none, are dumped.

A graph that is compiled for another purpose than to run (`export`) has no taps, and neither has one that MindSpore's
compile cache stores on disk (`compile_cache`).
"""

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial, wraps
from typing import Any

from attrs import define, field
from mindspore.train.anf_ir_pb2 import ModelProto
from probe_runtime.collect import sheltered
from probe_runtime.patching import Function, Nested, place, replaced

from probe_mindspore.hooks import autograd
from probe_mindspore.patching.compile_hook import API, compilation_replaced

from . import compile_cache
from .search import BranchError, Extent, Search, SearchResult, UntappableError

Region = Callable[[Extent], AbstractContextManager[Any]]

#: Why some graphs have no taps although they compile with them: they would fail when they run (2.7.0 and 2.10.0).
_BRANCHES = (
    "PyNative takes the gradients of this jitted piece, and which way it goes is decided when it runs: what passes on "
    "through such branches on its way back is not to be hooked"
)
_PYTHON = (
    "a part of the graph is Python that MindSpore does not compile (an asnumpy(), for one), and such a graph fails "
    "when it runs with taps; it ran without"
)
#: Key under which MindSpore stores a graph -> what the search found; later steps use the graph again.
_graphs: dict[str, SearchResult] = {}
#: What was compiled -> word of its taps -> what the search found; used when it is compiled for other arguments.
_alike: weakref.WeakKeyDictionary[Any, dict[str, SearchResult]] = weakref.WeakKeyDictionary()


@define(eq=False)
class TappedCompilations:
    """Compile graphs with as many taps as MindSpore can compile.

    word: the end of the keys of graphs with taps.
    tapped: a context in which compilation adds taps to the given extent.
    cells: the ids of the Cells to tap.
    met: to which the compiler adds the ids of Cells whose taps it reads. A graph without any keeps the user's key.
    ran: called before each run of a graph, with its name and what the search found when it was compiled.
    """

    word: str
    tapped: Region
    cells: tuple[int, ...]
    met: dict[int, None]
    ran: Callable[[str, SearchResult], None]
    _plain: dict[Any, Any] = field(factory=dict)
    _now: list[tuple[Any, list[SearchResult]]] = field(factory=list)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Patch everything that compiles while open. Undone also when the block raises."""
        places = [place(API._JitExecutor, "compile", _JIT), place(API._CellGraphExecutor, "compile", _CELL)]
        places.append(place(API, "_real_phase", _PHASE))
        _in_place.append(self)
        try:
            with replaced(places), compilation_replaced(self._compile):
                yield
        finally:
            _in_place.remove(self)

    def compile(self, what: Any, run: Callable[[], Any], keyed: AbstractContextManager[Any]) -> Any:
        """Compile a Cell or a jitted function.

        run: does so as without Probe.
        keyed: a context in which it has a key of its own.
        """
        if id(what) in self._plain:
            return run()
        off: AbstractContextManager[Any] = nullcontext()
        if compile_cache.is_on():  # the user's own graph too, so that it is loaded or stored as without Probe
            self._plain[id(what)] = what
            try:
                run()
            finally:
                del self._plain[id(what)]
            off = compile_cache.off()
        results: list[SearchResult] = []
        self._now.append((what, results))
        try:
            with keyed, off:
                answer = run()
                key = answer[0] if isinstance(answer, tuple) else answer
                if results and (results[-1].met or results[-1].why):
                    _graphs[key] = results[-1]
                if key in _graphs:
                    self.ran(getattr(what, "__qualname__", None) or type(what).__name__, _graphs[key])
                return answer
        finally:
            self._now.pop()

    def phase(self, real: Any, phase: Any, obj: Any) -> Any:
        """Return the key under which MindSpore stores a graph. real: the user's own."""
        known = str(real).endswith(f".{self.word}")  # a user's patch may pass on ours
        if known or phase != obj.phase:
            return real
        # What has no taps was compiled under our key during the call that has not returned yet.
        ours = f"{real}.{self.word}"
        known = id(obj) not in self._plain or (not self._now and ours in getattr(obj, "compile_cache", ()))
        return ours if known else real

    def _compile(self, original: Function) -> Function:
        @wraps(original)
        def compile(executor: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._now:
                return original(executor, *args, **kwargs)
            what, results = self._now[-1]

            def with_taps(extent: Extent) -> Any:
                with self.tapped(extent):
                    done = original(executor, *args, **kwargs)
                if extent.forward and _runs_python(executor, *args):
                    raise UntappableError(_PYTHON)
                if extent.gradients and autograd.recording() and _branches(executor, *args):
                    raise BranchError(_BRANCHES)
                return done

            search = Search(self.cells, with_taps, lambda: original(executor, *args, **kwargs), self.met)
            alike = _alike.setdefault(what, {})
            found = alike[self.word] = search.run(alike.get(self.word))
            results.append(found)
            if not found.met:
                self._plain[id(what)] = what  # held, so that no other object gets its id
            return found.answer

        return compile


_in_place: list[TappedCompilations] = []
_nested = Nested()


@contextmanager
def _keyed(executor: Any, word: str) -> Iterator[None]:
    """Let what this executor compiles have a word more in its key while open."""
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
            keyed = _keyed(executor, _in_place[-1].word)
            return _in_place[-1].compile(what, partial(original, executor, *args, **kwargs), keyed)

    return compile


def _cell(original: Function) -> Function:
    @wraps(original)
    def compile(executor: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        run = partial(original, executor, obj, *args, **kwargs)
        exported = kwargs.get("phase") != obj.phase
        if not _in_place or exported or _nested.is_recorded(obj, compile):
            return run()
        with _nested.call(obj, compile):
            return _in_place[-1].compile(obj, run, nullcontext())

    return compile


def _phase(original: Function) -> Function:
    @wraps(original)
    def real_phase(phase: Any, obj: Any) -> Any:
        real = original(phase, obj)
        return _in_place[-1].phase(real, phase, obj) if _in_place else real

    return real_phase


_JIT, _CELL, _PHASE = (sheltered("a compilation", make) for make in (_jit, _cell, _phase))


def _to_run() -> bool:
    """Return whether a jitted function is compiled because it was called, and not to be exported.

    Of MindSpore's modules its own one of compilations is then the caller, and in no other case.
    """
    frame = sys._getframe(2)
    while frame.f_back is not None and not str(frame.f_globals.get("__name__")).startswith("mindspore."):
        frame = frame.f_back
    return frame.f_globals is vars(API)


def _branches(executor: Any, what: Any, args: Any, kwargs: Any, phase: Any, *more: Any) -> bool:
    """Return whether a graph that has just been compiled has branches or loops that are decided when it runs.

    It has a switch then, or a call of another graph (the body of a loop), which has no operator name.
    """
    graph = ModelProto.FromString(executor.get_func_graph_proto(phase, "anf_ir", False)).graph
    return any(node.op_type in ("", "Switch", "SwitchLayer") for node in graph.node)


def _runs_python(executor: Any, what: Any, args: Any, kwargs: Any, phase: Any, *more: Any) -> bool:
    """Return whether a graph that has just been compiled runs a part of itself in Python."""
    return b"PyExecute" in executor.get_func_graph_proto(phase, "anf_ir", False)
