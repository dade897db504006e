"""Compile a graph with as many taps as MindSpore accepts: try all first, then fewer kinds of them, then none."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from attrs import frozen
from probe_format.excerpts import unsignalled


class UntappableError(Exception):
    """Report that this graph cannot have any taps."""


class Extent(IntEnum):
    """Say which taps a graph has: those of its name, and of all before it. There are few, as compiling is slow."""

    NOTHING = 0
    FORWARD = 1
    PARAMETERS = 2  # the gradients of parameters
    EVERYTHING = 3  # and those of Cells


@frozen
class SearchResult:
    """Hold the result of a search.

    answer: what the compiler returned.
    extent: the taps of the graph.
    met: the id of every Cell that the compiler read.
    why: the error that compiling with more taps raised.
    """

    answer: Any
    extent: Extent
    met: frozenset[int] = frozenset()
    why: Exception | None = None


def search(
    compile: Callable[[Extent], Any], met: dict[int, None], before: SearchResult | None = None
) -> SearchResult:
    """Compile a graph with as many taps as possible. Raises what the user's own code raises without taps.

    compile: compiles with taps of an extent; raises when that fails.
    met: the ids of the Cells that the compiler reads; it adds them.
    before: the result for the same function or Cell with other arguments.
    """
    found = before or SearchResult(None, Extent.EVERYTHING)
    extent, came_to, why = found.extent, set(found.met), found.why
    while True:
        met.clear()
        try:
            answer = compile(extent)
        except unsignalled(Exception) as e:
            if not extent:
                raise
            why = e.with_traceback(None)  # its frames hold tensors
            extent = Extent.NOTHING if isinstance(e, UntappableError) else Extent(extent - 1)
        else:
            return SearchResult(answer, extent, frozenset(came_to.union(met)), why)
        finally:
            came_to.update(met)
