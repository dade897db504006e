"""Search for the largest part of a graph that MindSpore compiles with taps in it.

Compiling is slow (minutes for a large network), so the attempts are few. Cells that were only tried together with one
that does not compile get no taps.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, evolve, field, frozen

Cells = frozenset[int]
_TRIES = 7
_PATIENCE = 600.0  # seconds after which no further attempt begins


class UntappableError(Exception):
    """Report that this graph cannot have any taps."""


@frozen
class Extent:
    """Describe which taps a graph has.

    forward: the Cells with taps.
    gradients: those of them with taps for gradients too.
    weights: whether the gradients of parameters are taken.
    """

    forward: Cells
    gradients: Cells
    weights: bool


_NOTHING = Extent(frozenset(), frozenset(), False)


@frozen
class SearchResult:
    """Hold the result of a search.

    answer: what the compiler returned.
    extent: the taps of the graph.
    met: every Cell that the compiler read.
    why: (side, Cell) of each tap left out -> the error; the sides are "forward", "gradients" and "weights".
    """

    answer: Any
    extent: Extent
    met: Cells = frozenset()
    why: dict[tuple[str, int], Exception] = field(factory=dict)


@define(eq=False)
class Search:
    """Compile a graph with as many taps as a few attempts find possible.

    cells: the ids of the Cells to tap.
    compile: compiles with taps of an extent; raises when that fails.
    plain: compiles without taps.
    met: to which the compiler adds the Cells that it reads, in order.
    tries: the number of attempts, at most.
    """

    cells: tuple[int, ...]
    compile: Callable[[Extent], Any]
    plain: Callable[[], Any]
    met: dict[int, None]
    tries: int = _TRIES
    _came_to: set[int] = field(factory=set)
    _why: dict[tuple[str, int], Exception] = field(factory=dict)
    _error: Exception = field(factory=Exception)
    _answer: Any = None
    _now: Extent | None = None  # what was compiled last
    _end: float = 0.0

    def run(self, first: SearchResult | None = None) -> SearchResult:
        """Compile with as many taps as possible. Raises what the user's own code raises without taps.

        first: the result for the same function or Cell with other arguments.
        """
        self._end = time.monotonic() + _PATIENCE
        everything = frozenset(self.cells)
        if first is not None and first.why and self._try(first.extent):
            return evolve(first, answer=self._answer, met=first.met | self._came_to)
        best = Extent(everything, everything, True)
        if not self._try(best) and isinstance(self._error, UntappableError):
            best = _NOTHING
            self._why.update({("forward", one): self._error for one in self._came_to})
            self._answer = self.plain()
        elif self._now is None:
            forward = self._forward(everything)
            best = self._backward(forward) if forward is not None else _NOTHING
            if not best.forward & self._came_to:
                best = _NOTHING
            if best != self._now and not (best.forward and self._try(best, counted=False)):
                best = _NOTHING
                self._answer = self.plain()
        if best is _NOTHING and not self._why:  # it failed before the compiler came to any Cell
            self._why["forward", 0] = self._error
        return SearchResult(self._answer, best, frozenset(self._came_to), self._why)

    def _forward(self, everything: Cells) -> Extent | None:
        if self._try(Extent(everything, frozenset(), False)):
            return self._now
        if isinstance(self._error, UntappableError):
            self._why.update({("forward", one): self._error for one in self._came_to})
            return None
        # Of those that it came to, the last is the one most likely not to compile. And if the first alone does not
        # compile either, no tap does.
        came_to = list(self.met)
        keep: Cells = frozenset()
        rest = [one for one in self.cells if one not in came_to[-1:]]
        if rest and self._try(_forward_only(rest)):
            keep = frozenset(rest)
            self._why.update({("forward", one): self._error for one in came_to[-1:]})
        elif came_to and self._try(_forward_only(came_to[:1])):
            rest = [one for one in self.cells if one not in (came_to[0], came_to[-1])]
            keep = frozenset(came_to[:1])
            keep = self._grow(keep, [*_halves(rest), came_to[1:][-1:]], "forward", _forward_only)
        else:
            self._why.update({("forward", one): self._error for one in self._came_to})
        return _forward_only(keep) if keep else None

    def _backward(self, best: Extent) -> Extent:
        there = [one for one in self.cells if one in self._came_to and one in best.forward]
        weights = self._may_try() and self._try(Extent(best.forward, frozenset(), True))
        if not weights:
            self._why["weights", 0] = self._error
        whole = weights and len(best.forward) == len(self.cells)  # then not all together, as was tried first
        parts = _halves(there) if whole else [there]
        keep = self._grow(frozenset(), parts, "gradients", lambda keep: Extent(best.forward, keep, weights))
        return Extent(best.forward, keep, weights)

    def _grow(
        self, keep: Cells, parts: list[list[int]], side: str, extent: Callable[[Cells], Extent]
    ) -> Cells:
        """Return ``keep`` with the parts that compile together, as far as the attempts go."""
        parts = [part for part in parts if part]
        while parts:
            part = parts.pop(0)
            if self._may_try() and self._try(extent(keep | frozenset(part))):
                keep |= frozenset(part)
            elif len(part) > 1 and self._may_try():
                parts += _halves(part)  # the others first: they may all be fine
            else:
                self._why.update({(side, one): self._error for one in part})
        return keep

    def _may_try(self) -> bool:
        return self.tries > 0 and time.monotonic() < self._end

    def _try(self, extent: Extent, counted: bool = True) -> bool:
        self.tries -= counted
        self.met.clear()
        try:
            self._answer = self.compile(extent)
        except Exception as e:
            self._error, self._now = e, None  # MindSpore keeps nothing of what it had compiled before
            return False
        finally:
            self._came_to.update(self.met)
        self._now = extent
        return True


def _forward_only(cells: Iterable[int]) -> Extent:
    return Extent(frozenset(cells), frozenset(), False)


def _halves(part: list[int]) -> list[list[int]]:
    return [part[: len(part) // 2], part[len(part) // 2 :]]
