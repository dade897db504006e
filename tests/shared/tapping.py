"""A tap that writes down the outermost calls of each thread, as the collector would count them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from probe_runtime.patching.switch import Label


def identities(held: Any) -> Any:
    """The ids of a dict's values, or of a sequence's: what stands in for a function is equal to it, and another."""
    return {name: id(value) for name, value in held.items()} if hasattr(held, "items") else [*map(id, held)]


class Recorder(threading.local):
    """`calls` are the names of this thread's outermost calls, in order of their end; a composite is written
    down and hides nothing."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.depth = 0

    def __call__(
        self, label: Label, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        outermost = not self.depth
        self.depth += not label.composite
        try:
            return original(*args, **kwargs)
        finally:
            self.depth -= not label.composite
            if outermost:
                self.calls.append(label.name)

    def take(self) -> list[str]:
        """The calls so far, and start afresh."""
        taken, self.calls = self.calls, []
        return taken
