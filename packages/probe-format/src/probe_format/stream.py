"""The events of one step on their way to the journal, and what goes wrong on the way.

A fault of ours is noted and the run goes on. A disk that takes no more ends the collection, not the run.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["Stream"]

_FULL = (27, 28, 122)  # file too large, disk full, over quota


class Stream:
    """Appends events while it is alive, and counts faults by the place where they happened.

    on: calls are recorded. alive: gradients and everything else still are. broken: why the collection ended
    early, None if it did not. off: the places that had too many faults.
    """

    def __init__(self, write: Callable[[dict[str, Any]], None], max_faults: int) -> None:
        """write: appends one event to the journal; may raise OSError."""
        self.on = False
        self.alive = True
        self.broken: str | None = None
        self.off: set[str] = set()
        self.max_faults = max_faults
        self._write = write
        self._counts: dict[str, int] = {}

    def append(self, event: dict[str, Any]) -> None:
        """Write one event. A disk that takes no more ends the collection, not the run."""
        if not self.alive:
            return
        try:
            self._write(event)
        except OSError as e:
            self.break_off(f"{e}")

    def end(self) -> None:
        """Nothing is recorded after this."""
        self.on = self.alive = False

    def break_off(self, why: str) -> None:
        """Stop collecting for good; what was written stays readable."""
        self.end()
        if self.broken is None:
            self.broken = why
            warnings.warn(
                f"Probe stopped collecting this step: {why}. The run goes on; everything recorded before this "
                "is readable (`probe recover`).",
                RuntimeWarning,
                stacklevel=2,
            )

    def fault(self, where: str, what: str, error: Exception) -> None:
        """Note a fault of Probe's own while it recorded ``what`` of ``where``; too many switch that place off."""
        if isinstance(error, OSError) and error.errno in _FULL:
            self.break_off(str(error))
            return
        count = self._counts.get(where, 0) + 1
        self._counts[where] = count
        if count >= self.max_faults:
            self.off.add(where)
        what = f"recording {what}: "
        text = (
            "".join(traceback.format_exception(error)) if count == 1 else f"{type(error).__name__}: {error}"
        )
        try:
            self.append({"k": "fault", "w": where, "m": what + text})
        except Exception:
            self.end()
