"""The regions of a step, open in a block or between two calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from probe_format.write.coverage import Coverage


class Scopes:
    """A framework's `step_regions`, which can be opened again. coverage: that of the last time."""

    def __init__(
        self, regions: Callable[..., Any], push: Callable[[str], None], pop: Callable[[str], None]
    ) -> None:
        self._make = lambda: regions(push, pop, self.coverage)
        self._open = contextlib.ExitStack()
        self.coverage = Coverage()

    def __enter__(self) -> Scopes:
        self.coverage = Coverage()
        self._open.enter_context(self._make())
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.close()

    @property
    def left_out(self) -> dict[str, int]:
        """Reason -> times; closes it."""
        self._open.close()
        return self.coverage.counts["left_out"]
