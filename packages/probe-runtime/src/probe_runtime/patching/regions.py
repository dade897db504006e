"""Regions of a step outside the model: those with a node of their own (optimizers), and those that are left out."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from probe_format.write import Coverage, Tally

from .included import Included
from .lookup import attributes_of
from .patches import Patches
from .places import Attribute, Function
from .switch import muted

__all__ = ["Regions", "StepRegions"]

Row = tuple[str, str, str]


class _Open(threading.local):
    """The nodes that this thread is in, outermost first."""

    def __init__(self) -> None:
        self.nodes: list[str] = []


class Regions:
    """`push(node)` and `pop(node)` frame what belongs to a node; quiet regions are not recorded.

    Every push is followed by its pop in the same thread, exceptions or not; a node inside itself is pushed
    once. While `compiling()` is true, and before `start` and after `stop`, nothing is pushed.
    """

    def __init__(
        self, push: Callable[[str], None], pop: Callable[[str], None], compiling: Callable[[], bool]
    ) -> None:
        self._quiet: dict[str, Tally] = {}
        self._push = push
        self._pop = pop
        self._compiling = compiling
        self._open = _Open()
        self._started = False

    def start(self) -> None:
        """Begin to count regions."""
        self._started = True

    def stop(self) -> None:
        """Count no more regions; close those that this thread is in (stopped from inside a region)."""
        for node in list(reversed(self._open.nodes)):
            self.closes(node)
        self._started = False

    def count_left_out(self, coverage: Coverage) -> None:
        """Count how often each quiet region was entered, by reason."""
        for reason, times in self._quiet.items():
            if times.value:
                coverage.add("left_out", reason, times.value)

    def opens(self, node: str) -> bool:
        """Push the node, unless it is open; return whether it was pushed."""
        if not self._started or node in self._open.nodes:
            return False
        self._push(node)
        self._open.nodes.append(node)
        return True

    def closes(self, node: str) -> None:
        """Pop the node if it is open."""
        if node in self._open.nodes:
            self._open.nodes.remove(node)
            self._pop(node)

    def in_node(self, original: Function, node: str) -> Function:
        """Return `original` such that what it calls is recorded under the node."""

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._compiling() or not self.opens(node):
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                self.closes(node)

        return call

    def in_quiet(self, original: Function, reason: str) -> Function:
        """Return `original` such that what it calls is left out and counted under the reason."""

        times = self._quiet.setdefault(reason, Tally())

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._compiling():
                return original(*args, **kwargs)
            times.add()
            with muted():
                return original(*args, **kwargs)

        return call

    def outside(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """A closure of the user's that runs the model: the open nodes are popped before it and pushed again
        after it."""

        @functools.wraps(closure)
        def call(*args: Any, **kwargs: Any) -> Any:
            nodes = list(self._open.nodes)
            for node in reversed(nodes):
                self.closes(node)
            try:
                return closure(*args, **kwargs)
            finally:
                for node in nodes:
                    self.opens(node)

        return call


class StepRegions(Included):
    """Frame or leave out the regions of a step, in the framework's functions that are such regions, while entered.

    rows: gives two tables, of nodes and of what is left out: (dotted path of the owner, name, node or reason).
    hooked: what else is open meanwhile, for what the framework tells by hooks.
    """

    def __init__(
        self,
        patches: Patches,
        regions: Regions,
        rows: Callable[[], tuple[Iterable[Row], Iterable[Row]]],
        hooked: Callable[[Regions], AbstractContextManager[Any]],
    ) -> None:
        super().__init__(patches, self._places, self._counting)
        self._regions = regions
        self._rows = rows
        self._hooked = hooked

    def count_left_out(self, coverage: Coverage) -> None:
        """Count what was left out, by reason."""
        self._regions.count_left_out(coverage)

    def _places(self) -> list[Attribute]:
        nodes, quiet = self._rows()
        return [*attributes_of(nodes, self._regions.in_node), *attributes_of(quiet, self._regions.in_quiet)]

    @contextmanager
    def _counting(self) -> Iterator[None]:
        self._regions.start()
        try:
            with self._hooked(self._regions):
                yield
        finally:
            self._regions.stop()
