"""Save the values of one step: hold its directory, record each value, and complete its files at the end.

On request a value's gradients are recorded too, as the backward pass brings them.
"""

import threading
from pathlib import Path
from typing import Any, Self

from attrs import define, evolve, field
from probe_format.excerpts import error_text, unsignalled
from probe_format.journal import events
from probe_format.names import DebugName
from probe_format.values import unsupported
from probe_format.write import Coverage, RankWriter
from probe_runtime.collect import header_of
from probe_runtime.config import Config
from probe_runtime.describe import RunError, options_of

from .awaited_gradients import AwaitedGradients
from .described_values import DescribedValues, SavedPlace
from .frameworks import MissingPackage
from .step_journal import StepJournal


@define(eq=False)
class SavedStep:
    """The state of one step, from its first save() until step(). Safe to use from many threads.

    values: describes the values, and has the journal.
    """

    directory: Path
    values: DescribedValues
    _next: dict[str, int] = field(factory=dict)  # name -> the number of its next value
    _gradients: AwaitedGradients = field(init=False)
    _gate: threading.Condition = field(factory=threading.Condition)  # notified when something was recorded
    _busy: list[int] = field(factory=list)  # the threads that record something now
    _over: bool = False

    @classmethod
    def begin(cls, config: Config, directory: Path, framework: str | None, about: dict[str, Any]) -> Self:
        """Open the journal of a step in its directory.

        framework: for the header; None where it is not known yet.
        about: more keys of the header (tool, rank, step).

        Raises OSError when the journal cannot be written.
        """
        own = evolve(config, tensor_list=(), extra_info=True)  # which are keys of other levels
        header = header_of(own, directory, about, framework=framework or "numpy")
        writer = RankWriter(directory, header)
        options = options_of(config, writer.tensor_directory)
        options = evolve(options, share=False, deferred=False, overlap=True)
        return cls(directory, DescribedValues(StepJournal(writer, Coverage()), options, config.kind.files))

    def __attrs_post_init__(self) -> None:
        self._gradients = AwaitedGradients(self.values, self.enter, self.leave)

    @property
    def alive(self) -> bool:
        return self._journal.alive

    @property
    def _journal(self) -> StepJournal:
        return self.values.journal

    def enter(self) -> bool:
        """Begin to record a value or gradient; return False when the step is over. After True, call `leave`."""
        with self._gate:
            if self._over:
                return False
            self._busy.append(threading.get_ident())
            return True

    def leave(self) -> None:
        with self._gate:
            self._busy.remove(threading.get_ident())
            if self._over:
                self._gate.notify_all()

    def save(self, variable: Any, name: str, *, backward: bool) -> None:
        """Record one value. When this returns, the value survives the death of the process.

        backward: whether its gradient is recorded too.

        Raises MissingPackage when the package of its framework is not installed, and RunError when an error of the run
        came meanwhile. Any other fault, such as a full disk, costs this value, never the run.
        """
        number, free = self._number(name, backward)
        place = self.values.place(str(DebugName(name, number)))
        partner = str(DebugName(f"{name}_grad", free)) if backward else None
        try:
            try:
                written = self._write(place, partner, *self.values.describe(place, variable))
            except (MissingPackage, OSError):
                raise
            except RunError as found:
                self._write_why(place, partner, variable, f"the run failed: {error_text(found.error)}")
                raise
            except unsignalled(Exception) as error:  # a value in it, or its description, cannot be written
                self._journal.fault(f"save of {name!r}", error)
                why = f"saving it raised {type(error).__name__}; see the faults"
                written = self._write_why(place, partner, variable, why)
        except MissingPackage:
            raise
        except unsignalled(Exception) as error:
            self.values.remove_files(place)
            self._journal.lost(f"save of {name!r}", error)
            return
        if written and partner is not None:
            for path, tensor in place.found:
                self._gradients.watch(partner, path, tensor)

    def _number(self, name: str, backward: bool) -> tuple[int, int]:
        """Return the number of the next value of ``name``, and one for its gradients: the same where it is free.

        The number may be taken where values are also saved under the name ``{name}_grad``.
        """
        partner = f"{name}_grad"
        with self._gate:
            number = self._next.get(name, 0)
            self._next[name] = number + 1
            free = max(number, self._next.get(partner, 0))
            if backward:
                self._next[partner] = free + 1
            return number, free

    def _write(self, place: SavedPlace, partner: str | None, value: bytes, form: Any) -> bool:
        """Append the event of one value; return False when the step is over. Raises what the writer raises."""
        gradients = None if partner is None else (partner, form)
        waiting = [path for path, _ in place.found] if gradients else ()
        return self._journal.append(events.save(place.record, value, gradients, waiting))

    def _write_why(self, place: SavedPlace, partner: str | None, variable: Any, why: str) -> bool:
        self.values.remove_files(place)
        place.found.clear()
        return self._write(place, partner, unsupported(variable, why), None)

    def end(self) -> dict[str, Any] | None:
        """Write debug.json and report.json. Return the report, or None when only the journal could be kept."""
        with self._gate:
            self._over = True
            # What other threads have begun belongs to this step. What this one has begun, Ctrl-C has ended.
            here = threading.get_ident()
            self._gate.wait_for(lambda: all(each == here for each in self._busy))
        report = None
        writer = self._journal.writer
        if self.alive and not writer.forked:
            self._gradients.release()
            try:
                self._journal.append_pending()
                writer.append(events.over())  # what has not come by now was not on its way
                if self._gradients.count:
                    left_out = "gradients that had not arrived"
                    self._journal.coverage.add("left_out", left_out, self._gradients.count)
                writer.append(events.tally(self.values.tally()))
                report = writer.finish(final=True)
            except unsignalled(OSError) as error:
                self._journal.break_off(error)
        self.abandon()
        return report

    def abandon(self) -> None:
        """Release everything and write nothing more. The journal stays readable."""
        self._journal.alive = False
        self._gradients.release()
        self.values.close()
        self._journal.writer.close()

    def disown(self) -> None:
        """Release this step in a fork()ed child, as it belongs to the parent."""
        self._journal.alive = False
        self._journal.writer.close()
