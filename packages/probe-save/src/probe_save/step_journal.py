"""Append the events of one step to its journal, and record what could not be written, without ending the user's run."""

import threading
import traceback

from attrs import define, field
from probe_format.excerpts import error_text, unsignalled
from probe_format.journal import events
from probe_format.write import Coverage, RankWriter, explain, remains
from probe_runtime.notice import notice

_MOST_PENDING = 1000


@define(eq=False)
class StepJournal:
    """The journal of one step. Safe to use from many threads.

    alive: whether anything more is recorded.
    """

    writer: RankWriter
    coverage: Coverage
    alive: bool = True
    _full: bool = False
    _pending: list[events.Event] = field(factory=list)  # that a full disk refused
    _lock: threading.RLock = field(factory=threading.RLock)

    def append(self, event: events.Event) -> bool:
        """Append an event; return False when nothing more is recorded. Raises what the writer raises."""
        if self.alive:
            self.writer.append(event)
        return self.alive

    def name_framework(self, name: str) -> None:
        if self.writer.header["framework"] != name:
            self.writer.header["framework"] = name
            try:
                self.writer.append(events.head(self.writer.header))
            except unsignalled(OSError) as error:
                self.lost("the framework's name", error)

    def fault(self, where: str, error: Exception) -> None:
        """Record a fault. One that a full disk refuses is kept for `append_pending`."""
        self.coverage.add("failed", "values")
        own = not isinstance(error, OSError)  # an OSError is no fault of Probe's: no traceback
        text = "".join(traceback.format_exception(error)) if own else error_text(error)
        self.append_at_last(events.fault(where, text))

    def append_at_last(self, event: events.Event) -> None:
        """Append an event; keep one that a full disk refuses for `append_pending`."""
        try:
            self.append(event)
        except unsignalled(Exception):
            if len(self._pending) < _MOST_PENDING:
                self._pending.append(event)

    def lost(self, where: str, error: Exception) -> None:
        """Record that something could not be written, and warn once in a step. The next value is tried again."""
        self.fault(where, error)
        if not isinstance(error, OSError):
            return
        with self._lock:
            first, self._full = not self._full, True
        if first:
            why = f"({where}): {explain(error, self.writer.directory)} The run goes on, and so does saving."
            notice(f"Probe could not write everything of a saved value {why}")

    def append_pending(self) -> None:
        """Append what was refused before. Raises what the writer raises."""
        for event in self._pending:
            self.writer.append(event)

    def break_off(self, error: OSError) -> None:
        """Record nothing more in this step, and warn once that it cannot be written."""
        with self._lock:
            first, self.alive = self.alive, False
        if first:
            self.writer.break_off(str(error))
            place = self.writer.directory
            why = f"{explain(error, place)} The run goes on; {remains(place)}."
            notice(f"Probe saves nothing more in this step: {why}")
