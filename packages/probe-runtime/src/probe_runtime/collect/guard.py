"""The one boundary between a framework and Probe: what fails of Probe's own is noted, and the user's run goes on.

Whatever a framework calls of ours comes through here, but for the two taps of `probe_runtime.collect.collector`, which
run most often and are built the same way.
"""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from attrs import define

from .event_stream import EventStream

__all__ = ["faults_reported", "guarded", "listen", "report_fault", "sheltered", "stop_listening"]

Function = Callable[..., Any]

_log = logging.getLogger("probe_runtime")
_streams: list[weakref.ref[EventStream]] = []
_said: set[str] = set()


def listen(stream: EventStream) -> None:
    """Faults go to this stream from now on, and so into its dump, where no earlier one takes them."""
    _streams.append(weakref.ref(stream))


def stop_listening(stream: EventStream) -> None:
    """This stream takes no more."""
    _streams[:] = [ref for ref in _streams if ref() is not None and ref() is not stream]


def report_fault(where: str, what: str, error: Exception) -> None:
    """Note a fault of ours in the step that is open; without one it is logged, once. Never raises."""
    try:
        for ref in list(_streams):
            stream = ref()
            if stream is not None and stream.alive:
                stream.fault(where, what, error)
                return
        text = f"{where}: {what} ({type(error).__name__}: {error})"
        if text not in _said:
            _said.add(text)
            _log.warning("Probe failed at %s; the run goes on.", text)
    except Exception:
        _log.warning("Probe failed, and could not note it; the run goes on.")


@define
class faults_reported:
    """Within ``with faults_reported(where, what):`` a fault of ours ends the block, is noted, and goes no further."""

    where: str
    what: str

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        report_fault(self.where, self.what, error)
        return True


def guarded(where: str, what: str, hook: Function) -> Function:
    """A hook of ours as the framework may call it: it gives what ``hook`` gives, or None where that fails."""

    return _Hook(where, what, hook).call


@define
class _Hook:
    """A hook of ours, and what is said of it when it fails."""

    where: str
    what: str
    hook: Function

    def call(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.hook(*args, **kwargs)
        except Exception as e:
            report_fault(self.where, self.what, e)
            return None


@define
class _Call:
    """One call of a sheltered function. over: the original has returned ``result``. error: what it raised last."""

    over: bool = False
    result: Any = None
    error: BaseException | None = None


class _Calls(threading.local):
    def __init__(self) -> None:
        self.open: list[_Call] = []


def sheltered(where: str, make: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """The same ``make``, whose function stands in for another one and calls it.

    Where that function fails on its own account, its caller gets what the original gave; the original is called
    when it has not been yet. What the original raises goes through.
    """

    def making(original: Function) -> Function:
        calls = _Calls()

        @functools.wraps(original)
        def begin(*args: Any, **kwargs: Any) -> Any:
            call = calls.open[-1] if calls.open else _Call()
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
            call = _Call()
            calls.open.append(call)
            try:
                return stand_in(*args, **kwargs)
            except Exception as e:
                if e is call.error:
                    raise
                report_fault(where, "a call", e)
            finally:
                calls.open.pop()
                call.error = None  # its frames hold this one
            return call.result if call.over else original(*args, **kwargs)

        return shelter

    return making
