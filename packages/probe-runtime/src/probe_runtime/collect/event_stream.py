"""Pass the events of one step to the journal, and turn faults of Probe into events.

The run goes on after a fault. A full disk ends the collection, not the run.
"""

import threading
import traceback

from probe_format.excerpts import error_text, unsignalled
from probe_format.journal import events
from probe_format.write import RankWriter, remains

from probe_runtime.describe.step_files import FULL
from probe_runtime.notice import notice


class EventStream:
    """Append events while ``alive``, and count faults by the place where they happened.

    append: writes one event: the writer's own method, which saves a call. A full disk ends the collection.
    on: whether calls are recorded.
    alive: whether anything is recorded, gradients included.
    waiting: whether an event since the last `over` has said that slots wait for gradients.
    broken: why the collection ended early; None if it did not.
    off: the places that had too many faults.
    max_faults: how many faults are too many.
    """

    def __init__(self, writer: RankWriter, max_faults: int) -> None:
        self.on = False
        self.alive = True
        self.waiting = False
        self.broken: str | None = None
        self.off: set[str] = set()
        self.max_faults = max_faults
        self.append = writer.append
        self._writer = writer
        writer.hand_to(lambda error: self.break_off(str(error)))
        self._counts: dict[str, int] = {}
        self._lock = threading.RLock()

    def open(self) -> None:
        """Record calls from now on, unless the collection has ended."""
        self.on = self.alive

    def pause(self) -> None:
        """Record no more calls. Gradients of the calls made before are still recorded."""
        self.on = False

    def end(self) -> None:
        """Record nothing after this."""
        self.on = self.alive = False
        self._writer.end()

    def break_off(self, why: str) -> None:
        """Stop collecting for good; what was written stays readable."""
        self.on = self.alive = False
        if self.broken is None:
            self.broken = why
            self._writer.break_off(why)
            notice(
                f"Probe stopped collecting this step: {why}. The run goes on; {remains(self._writer.directory)}."
            )

    def fault(self, where: str, what: str, error: Exception) -> None:
        """Record a fault of Probe; too many switch its place off.

        where: the place by which faults are counted, such as the key of a call.
        what: what Probe was recording there.
        """
        if isinstance(error, OSError) and error.errno in FULL:
            self.break_off(str(error))
            return
        with self._lock:
            count = self._counts[where] = self._counts.get(where, 0) + 1
        if count >= self.max_faults:
            self.off.add(where)
        what = f"recording {what}: "
        try:
            # An OSError is the machine's fault, not Probe's.
            own = count == 1 and not isinstance(error, OSError)
            text = "".join(traceback.format_exception(error)) if own else error_text(error)
            self.append(events.fault(where, what + text))
        except unsignalled(Exception):
            self.end()
