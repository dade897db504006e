"""Frame the regions of a step outside the model: some get a node (optimizers), some are not recorded."""

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
    """The nodes that each thread is in.

    nodes: outermost first.
    """

    def __init__(self) -> None:
        self.nodes: list[str] = []


class Regions:
    """Frame what belongs to a node by `push(node)` and `pop(node)`, and leave out quiet regions.

    push: begins a node.
    pop: ends it; called after each push, in the same thread, also after an exception.
    compiling: returns whether the framework compiles in this thread.

    A node inside itself is pushed once. While `compiling()` is true, before `start` and after `stop` nothing is pushed.
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
        """Push nodes from now on."""
        self._started = True

    def stop(self) -> None:
        """Push no more nodes; pop those that this thread is in, where it is called from inside a region."""
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
        """Return a function that calls `original`, and records what that calls under the node."""

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
        """Return a function that calls `original`, and records nothing of what that calls; it counts its own calls.

        reason: what they are counted under, for the report.
        """
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
        """Return a closure of the user's, which runs the model, such that it runs outside of the open nodes.

        They are popped before it and pushed again after it.
        """

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
    """Frame or leave out, while entered, the framework's functions that are regions of a step.

    patches: the patches to go with.
    regions: the regions to frame.
    rows: returns two tables of (dotted path of the owner, name, node or reason): the nodes, and what is left out.
    hooked: takes the regions and returns a context that is open meanwhile, for regions known by the framework's hooks.
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
