"""Where graphs are compiled: the taps are there for that moment, and tapped graphs are kept apart from the user's.

While this is in place, the keys under which MindSpore keeps compiled graphs end in a word of ours. So what was
compiled before is compiled once more, with taps; afterwards the user's own graph is used again as it was, so
that a dump costs nothing when it is over. What a graph keeps to itself does not follow it from one to the
other: random operators (dropout) begin anew in each graph (measured: nn.Dropout on 2.7.0 and 2.10.0). A run with
dropout has the same bits as without Probe when all its steps, or none, are dumped.
"""

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from attrs import define, field, frozen
from probe_format.guard import sheltered
from probe_format.patching.places import Attribute, Function, attribute

from .compiling import Around

__all__ = ["Compilations", "api_module"]

Region = Callable[[], AbstractContextManager[Any]]


def api_module() -> Any:
    """The module that compiles. Since 2.9 `mindspore.common.api` is only a copy of it."""
    for name in ("mindspore.graph.api", "mindspore.common.api"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ImportError("MindSpore has neither mindspore.graph.api nor mindspore.common.api")


@frozen
class _Graph:
    """A compiled graph. cells: ids of the Cells with taps in it. refusal: (name, why) where it has none."""

    cells: frozenset[int] = frozenset()
    refusal: tuple[str, str] | None = None


#: What was compiled, by the key under which MindSpore keeps it: later steps use it again.
_graphs: dict[str, _Graph] = {}


@define(eq=False)
class Compilations:
    """Compile inside ``tapped()``, and again without when that fails.

    word: ends the keys of graphs compiled so. cells: where the compiler leaves the ids of the Cells whose taps
    it has read; what has none keeps the user's keys from then on. Told before each run: ran(ids), the Cells with
    taps in the graph; refused(name, why), a graph that could not be compiled with taps.
    """

    word: str
    tapped: Region
    cells: set[int]
    ran: Callable[[frozenset[int]], None]
    refused: Callable[[str, str], None]
    _plain: dict[Any, Any] = field(factory=dict)
    _now: list[Any] = field(factory=list)
    _refusal: tuple[str, str] | None = None

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Everything is patched while this is open; undone also when the block raises."""
        api = api_module()
        places: list[Attribute | Around] = [
            attribute(api._JitExecutor, "compile", sheltered("a compilation", self._jit)),
            attribute(api._CellGraphExecutor, "compile", sheltered("a compilation", self._cell)),
            attribute(api, "_real_phase", sheltered("a compilation", self._phase)),
            Around(sheltered("a compilation", self._compile)),
        ]
        try:
            for place in places:
                place.put()
            yield
        finally:
            for place in reversed(places):
                place.restore()

    def _jit(self, original: Function) -> Function:
        @functools.wraps(original)
        def compile(executor: Any, *args: Any, **kwargs: Any) -> Any:
            what = executor.obj if executor.obj is not None else executor.fn
            if id(what) in self._plain:
                return original(executor, *args, **kwargs)
            before = executor._cell_cache_key_extend
            executor._cell_cache_key_extend = f"{before}.{self.word}"
            try:
                with self._noted(what) as note:
                    return note(original(executor, *args, **kwargs))
            finally:
                executor._cell_cache_key_extend = before

        return compile

    def _cell(self, original: Function) -> Function:
        @functools.wraps(original)
        def compile(executor: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
            if id(obj) in self._plain:
                return original(executor, obj, *args, **kwargs)
            with self._noted(obj) as note:
                return note(original(executor, obj, *args, **kwargs))

        return compile

    @contextmanager
    def _noted(self, what: Any) -> Iterator[Callable[[Any], Any]]:
        """Something is compiled, or was; gives what to hand the compiler's answer through: a key comes first."""
        self.cells.clear()
        self._refusal = None
        self._now.append(what)

        def note(answer: Any) -> Any:
            key = answer[0] if isinstance(answer, tuple) else answer
            if self.cells or self._refusal is not None:
                _graphs[key] = _Graph(frozenset(self.cells), self._refusal)
            graph = _graphs.get(key)
            if graph is not None and graph.refusal is not None:
                self.refused(*graph.refusal)
            elif graph is not None:
                self.ran(graph.cells)
            return answer

        try:
            yield note
        finally:
            self._now.pop()

    def _phase(self, original: Function) -> Function:
        @functools.wraps(original)
        def real_phase(phase: Any, obj: Any) -> Any:
            real = original(phase, obj)
            # What met no tap was compiled under our key in the call that is still going on.
            ours = f"{real}.{self.word}"
            known = id(obj) not in self._plain or ours in getattr(obj, "compile_cache", ())
            return ours if known else real

        return real_phase

    def _compile(self, original: Function) -> Function:
        @functools.wraps(original)
        def compile(executor: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._now:
                return original(executor, *args, **kwargs)
            what = self._now[-1]
            try:
                with self.tapped():
                    done = original(executor, *args, **kwargs)
            except Exception as e:
                self.cells.clear()
                self._refusal = (_name(what), _why(e))
                return original(executor, *args, **kwargs)
            if not self.cells:
                self._plain[id(what)] = what  # alive, so that its id stays its own
            return done

        return compile


def _why(error: Exception) -> str:
    lines = [line.strip("- ") for line in str(error).splitlines() if any(map(str.isalpha, line))]
    first = " ".join(lines[:2])[:300]  # the first line may be a heading
    return f"MindSpore could not compile it with taps ({type(error).__name__}: {first}); it ran without"


def _name(what: Any) -> str:
    return getattr(what, "__qualname__", None) or type(what).__name__
