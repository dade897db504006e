"""Let MindSpore compile the original functions, and record each jitted call as Jit.{function or Cell}."""

from __future__ import annotations

import functools
import importlib
import threading
from typing import Any

from mindspore import nn
from probe_runtime.collect import sheltered
from probe_runtime.patching import (
    Attribute,
    Function,
    Included,
    Patches,
    attribute,
    original_of,
    replaced,
    resolve_owner,
)
from probe_runtime.patching import thread as _thread

from .bytecode_jit import BytecodeCalls
from .compile_hook import around_compilation, parser
from .wrappers import Label, handed

__all__ = ["JitGuard"]

# Since 2.9 these are in mindspore.graph (mindspore.common.api is a copy that is not used), before that in
# mindspore.common. The first that exists is the right one.
_AST = ("mindspore.graph.api._JitExecutor", "mindspore.common.api._JitExecutor")
_BYTECODE = (
    "mindspore.graph._utils.pijit_context.PIJitCaptureContext",
    "mindspore.common._pijit_context.PIJitCaptureContext",
)
_TRACE = ("mindspore.graph.jit_trace", "mindspore.common.jit_trace")


_shelter = functools.partial(sheltered, "a jitted call")


class _Tracing(threading.local):
    depth = 0


_tracing = _Tracing()


class JitGuard(Included):
    """Record jitted calls, and keep wrappers away from the compiler. While entered and `patches` are applied:

    - a call of a function or Cell under @jit (ast, bytecode) or of a Cell in GRAPH_MODE goes through the tap as
      `Jit.{name}`, with the function's name, or the Cell's class for a Cell's construct;
    - a compilation (by the first such call; by vmap, jvp, export) finds the original functions;
    - calls inside a function traced under @jit(capture_mode="trace") are not recorded: they build a graph.
    """

    def __init__(self, patches: Patches) -> None:
        # The last argument's patches stay while the others are suspended: a closure of the user's may still hold a
        # wrapper.
        super().__init__(
            patches,
            lambda: _places(patches),
            lambda: replaced([*_parsers(), *around_compilation(patches.suspended)]),
        )


def _places(patches: Patches) -> list[Attribute]:
    places = [attribute(nn.Cell, "compile_and_run", _shelter(_cell))]
    if (executor := _first(_AST)) is not None:
        places.append(attribute(executor, "__call__", _shelter(_ast)))
    if (context := _first(_BYTECODE)) is not None:
        places += BytecodeCalls(context, patches).places()
    if (trace := _first(_TRACE)) is not None:
        steps = {"_jit_trace_begin": _begin, "_jit_trace_end": _end}
        places += [attribute(trace, name, _shelter(make)) for name, make in steps.items()]
    return places


def _first(paths: tuple[str, ...]) -> Any | None:
    for path in paths:
        module = path if path in _TRACE else path.rpartition(".")[0]
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        found = resolve_owner(path)
        if found is not None:
            return found
    return None


def _parsers() -> list[Attribute]:
    """Return the function by which the compiler looks up a name of the source."""
    source = parser()
    return [] if source is None else [attribute(source, "resolve_symbol", _shelter(_resolving))]


def _ast(original: Function) -> Function:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(self.fn, "__name__", "function")
        if name == "construct" and args:
            name = type(args[0]).__name__
        return handed(Label("Jit", name), functools.partial(original, self), args, kwargs)

    return call


def _cell(original: Function) -> Function:
    @functools.wraps(original)
    def compile_and_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return handed(Label("Jit", type(self).__name__), original, (self, *args), kwargs)

    return compile_and_run


def _begin(original: Function) -> Function:
    @functools.wraps(original)
    def begin(*args: Any, **kwargs: Any) -> Any:
        building = original(*args, **kwargs)
        if building:
            _thread.muted += 1
            _tracing.depth += 1
        return building

    return begin


def _end(original: Function) -> Function:
    @functools.wraps(original)
    def end(*args: Any, **kwargs: Any) -> Any:
        if _tracing.depth:
            _thread.muted -= 1
            _tracing.depth -= 1
        return original(*args, **kwargs)

    return end


def _resolving(original: Function) -> Function:
    @functools.wraps(original)
    def resolve_symbol(namespace: Any, symbol: Any) -> Any:
        return original_of(original(namespace, symbol))

    return resolve_symbol
