"""Let MindSpore compile the original functions, and record each jitted call as Jit.{function or Cell}."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mindspore import nn
from probe_runtime.collect import sheltered
from probe_runtime.patching import Function, Label, Patches, Place, place, replaced, without_ours

from .bytecode_jit import bytecode_places
from .compile_hook import API, around_compilation, first_of, resolved_names
from .traced_jit import trace_places
from .wrappers import handed, jit_label

_BYTECODE = first_of(
    "mindspore.graph._utils.pijit_context:PIJitCaptureContext",
    "mindspore.common._pijit_context:PIJitCaptureContext",
)


@contextmanager
def jit_guard(patches: Patches) -> Iterator[None]:
    """Keep wrappers away from the compiler while open: a compilation (by a call, vmap, jvp, export) finds originals.

    A closure of the user's may still hold a wrapper while all are suspended: the compiler finds its original, too.
    Calls inside a function traced under @jit(capture_mode="trace") are not recorded: they build a graph.
    """
    with (
        around_compilation(patches.suspended),
        resolved_names(lambda namespace, symbol, value: without_ours(value)),
        replaced(trace_places()),
    ):
        yield


def jit_places() -> list[Place]:
    """Return the places that record jitted calls, which are replaced together with the recorded functions.

    A call of a function or Cell under @jit (ast, bytecode) or of a Cell in GRAPH_MODE goes through the tap as
    `Jit.{name}`, with the function's name, or the Cell's class for a Cell's construct.
    """
    places = [place(nn.Cell, "compile_and_run", _CELL), place(API._JitExecutor, "__call__", _EXECUTOR)]
    return [*places, *(bytecode_places(_BYTECODE) if _BYTECODE is not None else ())]


def _ast(original: Function) -> Function:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return handed(jit_label(self.fn, args), functools.partial(original, self), args, kwargs)

    return call


def _cell(original: Function) -> Function:
    @functools.wraps(original)
    def compile_and_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return handed(Label("Jit", type(self).__name__), original, (self, *args), kwargs)

    return compile_and_run


_CELL, _EXECUTOR = sheltered("a jitted call", _cell), sheltered("a jitted call", _ast)
