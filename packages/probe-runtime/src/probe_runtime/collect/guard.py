"""Guard the boundary between a framework and Probe: a fault of Probe is reported, and the user's run goes on.

Everything of Probe that a framework calls is guarded here, except the two taps of `probe_runtime.collect.recorder`:
they run most often and have the same guard built in.
"""

import functools
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from attrs import define
from probe_format.excerpts import error_text, from_signal, unsignalled

from probe_runtime.describe.run_error import RunError, is_handed_on
from probe_runtime.notice import log_once

from .event_stream import EventStream

Function = Callable[..., Any]

_streams: list[weakref.ref[EventStream]] = []


def listen(stream: EventStream) -> None:
    """Send faults to this stream, and so into its dump, unless an earlier stream is still alive."""
    _streams.append(weakref.ref(stream))


def stop_listening(stream: EventStream) -> None:
    """Send no more faults to this stream."""
    _streams[:] = [ref for ref in _streams if ref() is not None and ref() is not stream]


def report_fault(where: str, what: str, error: Exception) -> None:
    """Record a fault of Probe in the step that is open; without one, log it once. Never raises."""
    try:
        for ref in list(_streams):
            stream = ref()
            if stream is not None and stream.alive:
                stream.fault(where, what, error)
                return
        log_once("probe_runtime", f"Probe failed at {where}: {what} ({error_text(error)}); the run goes on.")
    except unsignalled(Exception):
        log_once("probe_runtime", "Probe failed, and could not note it; the run goes on.")


@define
class faults_reported:
    """Report a fault of Probe that ends the block, and go on after it: ``with faults_reported(where, what):``.

    where: the place of the block.
    what: what Probe does there.
    """

    where: str
    what: str

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, RunError):
            raise error.error from error
        if not isinstance(error, Exception) or from_signal(error):
            return False
        report_fault(self.where, self.what, error)
        return True


def guarded(where: str, what: str, hook: Function) -> Function:
    """Return ``hook`` as a framework may call it: a fault in it is reported, and the call returns None.

    An error of the run is handed on.
    """

    return _Hook(where, what, hook).call


@define
class _Hook:
    """A hook of Probe, and the place and the action that its faults are reported with."""

    where: str
    what: str
    hook: Function

    def call(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.hook(*args, **kwargs)
        except RunError as e:
            raise e.error from e
        except unsignalled(Exception) as e:
            report_fault(self.where, self.what, e)
            return None


@define
class _Attempt:
    """One call of a sheltered function.

    over: whether the original has returned.
    result: what it returned.
    error: what it raised last.
    """

    over: bool = False
    result: Any = None
    error: BaseException | None = None


class _Attempts(threading.local):
    def __init__(self) -> None:
        self.open: list[_Attempt] = []


def sheltered(where: str, make: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Return ``make`` with guarded replacements.

    where: the place that faults are reported under.
    make: takes an original and returns its replacement, which calls the original.

    Where a replacement fails by a fault of its own, its caller gets what the original returned; an original that was
    not called yet is called. What the original raises is passed on.
    """

    def making(original: Function) -> Function:
        calls = _Attempts()

        @functools.wraps(original)
        def begin(*args: Any, **kwargs: Any) -> Any:
            call = calls.open[-1] if calls.open else _Attempt()
            call.over = False
            try:
                call.result = original(*args, **kwargs)
            except BaseException as e:
                call.error = e
                raise
            call.over = True
            return call.result

        stand_in = make(begin)

        @functools.wraps(original)
        def shelter(*args: Any, **kwargs: Any) -> Any:
            call = _Attempt()
            calls.open.append(call)
            try:
                return stand_in(*args, **kwargs)
            except unsignalled(Exception) as e:
                if e is call.error or is_handed_on(e):
                    raise
                report_fault(where, "a call", e)
            finally:
                calls.open.pop()
                call.error = None  # its frames refer to this call: no cycle must stay
            return call.result if call.over else original(*args, **kwargs)

        return shelter

    return making
