"""What a signal's handler raises is told from any other error by its frame, whatever kind of handler it is."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from probe_format.excerpts import asked, error_text, from_signal, unsignalled


class Late(Exception):
    """A request's time is up."""


def late(number: int, frame: Any) -> None:
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


def test_any_other_error_is_not() -> None:
    before = signal.signal(signal.SIGUSR1, _walks)
    try:
        assert guarded(lambda: 1 / 0) == guarded(lambda: {}["x"]) == guarded(lambda: late(1, None)) == "taken"
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
