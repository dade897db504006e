"""Count what an export writes and leaves out, and pass its progress on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from probe_analysis.calls import Progress, Run

from .rows import Rows, rows_of

__all__ = ["Count"]

_AMOUNTS = ("runs", "records", "tensors", "arguments", "left_out", "too_large")


class Count:
    """Hold how much was written, and what could not be read.

    filter: only records with this text in their names are written.
    progress: called with (label, records written, records in all).
    """

    def __init__(self, filter: str, progress: Progress | None) -> None:
        self.filter, self._progress = filter, progress
        self.runs = self.records = self.tensors = self.arguments = self.left_out = self.too_large = 0
        self.errors: list[tuple[str, str]] = []
        self.killed: list[str] = []
        self.lost: list[str] = []

    def rows(self, run: Run) -> Iterator[Rows]:
        """Yield the rows of each call of a run that the filter lets through.

        Raises FormatError, before the first, when the files of the run are damaged.
        """
        total = len(run.calls)
        _ = run.rank.stack  # which is damaged now, or never
        if run.rank.source == "journal":
            self.killed.append(run.label)
        if run.rank.lost:
            self.lost.append(f"{run.label}: {run.rank.lost}")
        for n, call in enumerate(run.calls):
            if self._progress is not None and n % 256 == 0:
                self._progress(run.label, n, total)
            if self.filter not in call.name:
                self.left_out += 1
                continue
            found = rows_of(run, call)
            self.records += 1
            self.tensors += len(found.tensors)
            self.arguments += len(found.arguments)
            if "error" in found.record:
                self.error(f"{run.label} {call.name}", found.record["error"])
            yield found

    def holes(self, run: Run) -> str | None:
        """Return, and note, why a run that was written may lack records; None where nothing says so."""
        journal = run.rank.journal
        if journal is None or journal.state != "damaged":
            return None
        why = f"its journal is damaged, so records may be missing ({journal.detail})"
        self.error(run.label, why)
        return why

    def error(self, what: str, why: object) -> None:
        """Note what could not be read."""
        self.errors.append((what, str(why)))

    def amounts(self) -> dict[str, int]:
        """Return each count by its name."""
        return {name: getattr(self, name) for name in _AMOUNTS}

    def content(self) -> dict[str, Any]:
        """Return what the file says that marks an export."""
        return {**self.amounts(), "filter": self.filter, "killed": self.killed, "errors": self.errors}
