"""Mark regions of a step outside the model: some get a node of construct.json (optimizers), some are left out."""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from probe_format.write import Coverage, Tally

from .places import Function, Place
from .registry import attributes_of
from .switch import Nested, muted

Row = tuple[str, str, str]
Node = Callable[[str], None]


class _Open(threading.local):
    """The regions that each thread is in.

    of: the start (`Regions.started`) that the nodes belong to.
    nodes: the open nodes, outermost first.
    """

    def __init__(self) -> None:
        self.of: object = None
        self.nodes: list[str] = []


def _nothing(node: str) -> None:
    """Do nothing."""


class Regions:
    """Call `push(node)` and `pop(node)` around what belongs to a node, and record nothing in quiet regions.

    Each framework has one. A node inside itself is pushed once. Nothing is pushed before `started`, nor while the
    framework compiles in this thread.
    """

    def __init__(self, compiling: Callable[[], bool] = lambda: False) -> None:
        """Push nothing yet. compiling: returns whether the framework compiles in this thread."""
        self._quiet: dict[str, Tally] = {}
        self._compiling = compiling
        self._open = _Open()
        self._in_quiet = Nested()
        self._push: Node = _nothing
        self._pop: Node = _nothing
        self._started: object = None

    @contextmanager
    def started(self, push: Node, pop: Node, coverage: Coverage) -> Iterator[None]:
        """Push nodes within this context. At its end this thread's open nodes are popped, other threads' forgotten.

        push: begins a node.
        pop: ends it; called after each push, in the same thread, also after an exception.
        coverage: gets how often each quiet region was entered, by reason.
        """
        self._quiet.clear()
        self._push, self._pop, self._started = push, pop, object()
        try:
            yield
        finally:
            for node in list(reversed(self._open.nodes)):
                self.closes(node)
            self._started = None
            self._push = self._pop = _nothing
            for reason, times in self._quiet.items():
                if times.value:
                    coverage.add("left_out", reason, times.value)

    def places(self, nodes: Iterable[Row], quiet: Iterable[Row]) -> list[Place]:
        """Return the places of two tables of (dotted path of the owner, name, node or reason)."""
        named = [(path, name, reason, f"{path}.{name}") for path, name, reason in quiet]
        return [*attributes_of(nodes, self.in_node), *attributes_of(named, self.in_quiet)]

    def opens(self, node: str) -> bool:
        """Push the node, unless it is open; return whether it was pushed."""
        if (started := self._started) is None:
            return False
        if self._open.of is not started:
            self._open.of, self._open.nodes = started, []
        if node in self._open.nodes:
            return False
        self._open.nodes.append(node)
        try:
            self._push(node)
        except BaseException:  # a signal's handler has raised
            self.closes(node)
            raise
        return True

    def closes(self, node: str) -> None:
        """Pop the node if it is open."""
        if self._open.of is self._started and node in self._open.nodes:
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

    def in_quiet(self, original: Function, reason: str, name: str) -> Function:
        """Return a function that calls `original`, and records nothing of what that calls; it counts its own calls.

        reason: what they are counted under, for the report.
        name: that of the function.
        """

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._compiling() or self._started is None:
                return original(*args, **kwargs)
            if not self._in_quiet.is_recorded(name, call):
                self._quiet.setdefault(reason, Tally()).add()
            with self._in_quiet.call(name, call), muted():
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
