"""Wrap MindSpore's compilation of graphs, and its look-up of names in sources, for several parts of Probe at once.

These parts begin and end in any order: the method ``compile`` is replaced for as long as any of them needs it.
"""

import contextlib
import functools
import pkgutil
from collections.abc import Callable
from typing import Any

import mindspore
from probe_runtime.collect import sheltered
from probe_runtime.patching import Function, Held, Nested, listening, place


def first_of(*paths: str) -> Any:
    """Return the first of these that this MindSpore has: a module, or ``module:name``. None where it has none."""
    for path in paths:
        with contextlib.suppress(ImportError, AttributeError):
            return pkgutil.resolve_name(path)
    return None


#: The module that compiles: since 2.9 `mindspore.common.api` is only a copy of it, which is not used.
API: Any = first_of("mindspore.graph.api", "mindspore.common.api")
_PARSER = first_of("mindspore.graph._parse", "mindspore._extends.parse")  # looks up the names of a source

Make = Callable[[Function], Function]
_active: list[Make] = []
_nested = Nested()


def compilation_replaced(make: Make) -> Held:
    """Call make(compile) instead of ``compile`` until the result is undone. The last one begun is the outermost."""
    make = sheltered("a compilation", make)
    return listening(_active, make, [place(kind, "compile", _COMPILING) for kind in executors("compile")])


def executors(method: str) -> list[type]:
    """Return the classes of MindSpore's compilers that have a method."""
    kinds = (getattr(mindspore._c_expression, name, object) for name in ("GraphExecutor_", "JitExecutor_"))
    return [kind for kind in kinds if method in vars(kind)]


def around_compilation(region: Callable[[], contextlib.AbstractContextManager[Any]]) -> Held:
    """Run every compilation inside ``region()`` until the result is undone.

    A graph that is compiled already runs without it.
    """

    def inside(original: Function) -> Function:
        @functools.wraps(original)
        def compile(executor: Any, *args: Any, **kwargs: Any) -> Any:
            with region():
                return original(executor, *args, **kwargs)

        return compile

    return compilation_replaced(inside)


def _all(original: Function) -> Function:
    @functools.wraps(original)
    def compile(executor: Any, *args: Any, **kwargs: Any) -> Any:
        if _nested.is_recorded(executor, compile):
            return original(executor, *args, **kwargs)
        inner = original
        for make in list(_active):
            inner = make(inner)
        with _nested.call(executor, compile):
            return inner(executor, *args, **kwargs)

    return compile


_COMPILING = sheltered("a compilation", _all)


Change = Callable[[Any, Any, Any], Any]
_changes: list[Change] = []


def resolved_names(change: Change) -> Held:
    """Let the compiler find change(namespace, symbol, value) for the names of a source, until the result is undone."""
    places = [place(_PARSER, "resolve_symbol", _RESOLVING)] if hasattr(_PARSER, "resolve_symbol") else []
    return listening(_changes, change, places)


def _resolving(original: Function) -> Function:
    @functools.wraps(original)
    def resolve_symbol(namespace: Any, symbol: Any) -> Any:
        value = original(namespace, symbol)
        for change in list(_changes):
            value = change(namespace, symbol, value)
        return value

    return resolve_symbol


_RESOLVING = sheltered("a compilation", _resolving)
