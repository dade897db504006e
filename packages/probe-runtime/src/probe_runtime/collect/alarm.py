"""Raise, or enter the debugger, at the call where values begin that are not finite (the key `on_non_finite`)."""

import linecache
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from probe_format import jsonio
from probe_format.errors import NonFiniteError
from probe_format.excerpts import unsignalled
from probe_format.journal import HOLE, events
from probe_format.names import CLIP_GRAD, OPTIMIZER
from probe_format.schema import MASK, Value, kinds_of, parts_of, path_text, suspect_of

from probe_runtime.describe.run_error import RunError
from probe_runtime.notice import notice, user_frame

from .calls import Call, Line
from .guard import faults_reported
from .thread_state import ThreadState

#: A tensor object has its counts where something in it is not finite. Inside JSON strings the quotes are escaped.
_COUNTS = b'"nan_count":'
_RECORD = b'{"input_args":%b,"input_kwargs":%b,"parameters":%b,"output":%b}'
_UPDATES = (CLIP_GRAD, OPTIMIZER)
_NONE: frozenset[str] = frozenset()


class Alarm:
    """Look at the calls of one step as they are recorded, and sound once: where such values begin.

    The rule is that of ``probe nan`` (probe-format's spec/statistics.md). Safe to use from many threads.

    is_late: whether there are numbers that come later than their record; then the dump is looked at.
    is_over: whether it has sounded in this step, or must not.
    """

    def __init__(self, mode: str, thread: ThreadState) -> None:
        """Look from now on. mode: ``raise`` or ``break``."""
        self.is_late = self.is_over = False
        self._is_silent = False
        self._mode = mode
        self._thread = thread
        self._is_scaled = False
        self._meant: set[str] = set()
        self._given: dict[str, frozenset[str]] = {}
        self._pending: NonFiniteError | None = None

    def only_late(self) -> None:
        """Look at the dump alone, after it is written: the recorded calls run where nothing may be raised."""
        self.is_late = self._is_silent = True

    def mute(self) -> None:
        """Look at nothing more in this step: a loss scaler looks at its gradients, and skips the update."""
        self.is_over = True

    @contextmanager
    def scaling(self) -> Iterator[None]:
        """Look at nothing within this region, nor at this step's gradients after it: a loss scaler looks at them."""
        self._is_scaled, before = True, self._is_silent
        self._is_silent = True
        try:
            yield
        finally:
            self._is_silent = before

    # -- what is looked at ----------------------------------------------------------------------------

    def entered(self, call: Call) -> None:
        """Take what a call got. Raises RunError where that is not finite, and no call before has made it so."""
        frame = user_frame(sys._getframe(1))
        call.line = frame.f_code.co_filename, frame.f_lineno or 1, frame.f_code.co_name
        self._look(call, b"[]")

    def ended(self, call: Call, output: bytes) -> None:
        """Take what a call returned. Raises RunError where values begin in it that are not finite."""
        self._look(call, output)
        call.given = None

    def gradients(
        self, call: Call, record: str, slots: Sequence[events.Slot], values: Sequence[bytes]
    ) -> None:
        """Take gradients of a call. Raises RunError where values begin in them that are not finite.

        record: the name of the backward record.
        """
        if not self._is_wanted(*values) or self._is_scaled:
            return
        found = [
            Value(
                path_text(("input" if slot[0] == "i" else "output", *slot[1:])),
                "in" if slot[0] == "i" else "out",
                t,
            )
            for slot, value in zip(slots, values, strict=True)
            if _COUNTS in value and kinds_of(t := jsonio.loads(value))
        ]
        given = self._given.get(record, _NONE).union(*(kinds_of(v.tensor) for v in found if v.side == "in"))
        self._given[record] = given
        made = _NONE.union(*(kinds_of(v.tensor) for v in found if v.side == "out")) - given
        if made or given - MASK:
            self._sound(record, found, bool(made), call.line)

    def parameter(self, record: str, name: str, value: bytes) -> None:
        """Take the gradient of a parameter. Raises RunError where it is not finite."""
        if self._is_wanted(value) and not self._is_scaled:
            self._sound(record, [Value(f"{name}.0", "out", jsonio.loads(value))], True, None)

    def written(self, directory: Path) -> None:
        """Look at a dump that has been written, for `hand_on`: at its numbers that came late."""
        if self.is_over or self._is_scaled or not self.is_late:
            return
        from probe_format.read import open, origins, suspects

        with faults_reported("on_non_finite", "looking at the dump"):
            for rank in open(directory).ranks:
                for first in origins(rank, suspects(rank)):
                    self.is_over, self._pending = True, NonFiniteError(first.sentence, first.name, "")
                    return

    def hand_on(self) -> None:
        """Raise the error that `written` has found, or enter the debugger."""
        error, self._pending = self._pending, None
        if error is not None:
            self._stop(error)

    # -- inside ---------------------------------------------------------------------------------------

    def _is_wanted(self, *values: bytes) -> bool:
        if self.is_over or self._is_silent:
            return False
        if any(HOLE in value for value in values):
            self.is_late = True
            return False
        return any(_COUNTS in value for value in values)

    def _look(self, call: Call, output: bytes) -> None:
        if not self._is_wanted(*call.given, output):
            return
        above = [name for name, _ in self._thread.stack]
        if self._is_scaled and any(name in _UPDATES for name in above):
            return
        parts = parts_of(jsonio.loads(_RECORD % (*call.given, output)))
        suspect = suspect_of(call.name, 0, parts)
        if suspect is None:
            return
        if suspect.asked:
            self._meant.update(above)
        made, brought = suspect.blamed(MASK if call.name in self._meant else _NONE)
        if made or brought:
            bad = [value for value in parts.values if kinds_of(value.tensor)]
            self._sound(call.name, bad, bool(made), call.line)

    def _sound(self, name: str, bad: Sequence[Value], is_made: bool, line: Line | None) -> None:
        from probe_format.read import begins

        self.is_over = True
        given, made = ([v for v in bad if (v.side == "out") is out] for out in (False, True))
        where = source = ""
        if line is not None:
            where = f"{line[0]}:{line[1]} in {line[2]}"
            linecache.checkcache(line[0])
            source = linecache.getline(*line[:2]).strip()
        told = [begins(name, given, made, not is_made), f"{where}: {source}." if where else ""]
        error = NonFiniteError(" ".join(filter(None, told)), name, where)
        try:
            self._stop(error)
        except NonFiniteError:
            raise RunError(error, "on_non_finite: raise") from None

    def _stop(self, error: NonFiniteError) -> None:
        if self._mode == "raise":
            raise error
        notice(f"Probe: {error}")
        try:
            breakpoint()  # `up` leads to the call
            del error
        except unsignalled(Exception) as left:  # the user has left the run from there
            raise RunError(left, "on_non_finite: break") from left
