"""What a signal's handler or a trace raises is told from any other error by its frame, whatever kind it is of."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from probe_format.excerpts import asked, error_text, from_signal, unsignalled


class Late(Exception):
    """A request's time is up."""


def late(number: int, frame: Any) -> None:
    raise Late


def _asks(frame: Any, what: str) -> None:
    raise Late


def _walks(number: int, frame: Any) -> None:
    while frame is not None:
        frame = frame.f_back
    raise Late


def _once(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise Late


class Handler:
    def __call__(self, *given: Any) -> None:
        raise Late

    def method(self, number: int, frame: Any) -> None:
        raise Late


HANDLERS: dict[str, Callable[..., Any]] = {
    "function": late,
    "lambda": lambda *given: late(*given),
    "one that needs no arguments": lambda *_: late(0, None),
    "partial": functools.partial(late),
    "partial of two words": functools.partial(lambda word, number, frame: late(number, frame), "word"),
    "method": Handler().method,
    "object": Handler(),
    "one that walks": _walks,
    "one for a single time": _once,
}


def ring(*given: Any) -> Any:
    os.kill(os.getpid(), signal.SIGUSR1)


def guarded(work: Callable[[], Any]) -> str:
    try:
        work()
    except unsignalled(Exception):
        return "taken"
    return "passed"


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS.keys())
def test_what_a_handler_raises_is_the_runs(handler: Any) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Late) as found:
            guarded(ring)
        assert from_signal(found.value)
    finally:
        signal.signal(signal.SIGUSR1, before)


class Traces:
    def __call__(self, *given: Any) -> None:
        raise Late

    def at_line(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "line":
            raise Late
        return self.at_line


LOOKS: dict[str, Callable[..., Any]] = {
    "function": lambda frame, event, arg: late(0, None),
    "object": Traces(),
    "method that raises at a line": Traces().at_line,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
def test_what_a_trace_raises_is_the_runs(look: Any) -> None:
    with pytest.raises(Late) as found:
        sys.settrace(look)
        try:
            guarded(lambda: ring)
        finally:
            sys.settrace(None)
    assert from_signal(found.value)


@pytest.mark.parametrize("event", ["call", "return", "c_call", "c_return", "c_exception"])
def test_so_is_what_a_profile_function_raises(event: str) -> None:
    def look(frame: Any, what: str, arg: Any) -> None:
        if what == event and frame.f_code is work.__code__:
            raise Late

    def work() -> None:
        with contextlib.suppress(TypeError):
            abs(-1)
            abs()  # type: ignore[call-arg]

    sys.setprofile(look)
    try:
        with pytest.raises(Late):
            guarded(work)
    finally:
        sys.setprofile(None)


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="this Python has no sys.monitoring")
def test_so_is_what_a_function_of_monitoring_raises() -> None:
    def look(code: Any, line: int) -> None:
        raise Late

    def work() -> None:
        pass

    tool, line = 4, sys.monitoring.events.LINE
    sys.monitoring.use_tool_id(tool, "test")
    try:
        sys.monitoring.register_callback(tool, line, look)
        sys.monitoring.set_local_events(tool, work.__code__, line)
        with pytest.raises(Late):
            guarded(work)
    finally:
        sys.monitoring.free_tool_id(tool)


def test_any_other_error_is_not() -> None:
    before = signal.signal(signal.SIGUSR1, _walks)
    try:
        assert guarded(lambda: 1 / 0) == guarded(lambda: {}["x"]) == guarded(lambda: late(1, None)) == "taken"
        assert (
            guarded(lambda: _asks(inspect.currentframe(), "its name"))
            == guarded(lambda: _asks(1, "call"))
            == "taken"
        )
        assert not from_signal(None) and not from_signal(Late())
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_error_whose_text_is_asked_for_meanwhile_hands_it_on() -> None:
    class Rings(Exception):
        __repr__ = __str__ = ring

    before = signal.signal(signal.SIGUSR1, late)
    try:
        for question in (lambda: error_text(Rings()), lambda: asked(str, Rings())):
            with pytest.raises(Late):
                question()
    finally:
        signal.signal(signal.SIGUSR1, before)
