"""Leave out what torch computes for itself with fake tensors: shapes of DTensors, graphs that it traces."""

import contextlib
import functools
import os
import sys
import threading
from types import FrameType
from typing import Any

import torch
from probe_runtime.patching import Function, Held, place, replaced, thread
from torch._subclasses.fake_tensor import FakeTensorMode

_TORCH = os.path.dirname(torch.__file__) + os.sep
_BETWEEN = (contextlib.__file__, os.path.dirname(__file__))


class _FakeModes(threading.local):
    """The modes that a thread has entered, each with whether the thread is muted for it."""

    def __init__(self) -> None:
        self.entered: list[tuple[Any, bool]] = []


_thread = _FakeModes()
#: Thread -> the modes that it has entered, and its attributes of `thread`, by which another thread can unmute it.
_inside: dict[int, tuple[list[tuple[Any, bool]], dict[str, Any]]] = {}


def quiet_fakes() -> Held:
    """Record nothing that runs under a FakeTensorMode that torch itself has entered, until the result is undone.

    Calls under a mode that the user enters are recorded, and their tensors have no numbers.
    """
    places = [place(FakeTensorMode, "__enter__", _entering), place(FakeTensorMode, "__exit__", _leaving)]
    return replaced(places, _leave_all)


def _leave_all() -> None:
    """Unmute the threads that are still in a mode when stop() is called, and forget the modes."""
    while _inside:
        _, (entered, state) = _inside.popitem()
        while entered:
            state["muted"] -= entered.pop()[1]


def _entering(original: Function) -> Function:
    @functools.wraps(original)
    def enter(mode: Any) -> Any:
        entered = original(mode)
        is_muted = _is_torchs(sys._getframe(1))
        thread.muted += is_muted
        _thread.entered.append((mode, is_muted))
        _inside[threading.get_ident()] = _thread.entered, vars(thread)
        return entered

    return enter


def _leaving(original: Function) -> Function:
    @functools.wraps(original)
    def leave(mode: Any, *error: Any) -> Any:
        entered = _thread.entered
        if entered and entered[-1][0] is mode:  # else it was entered before start()
            thread.muted -= entered.pop()[1]
            if not entered:
                _inside.pop(threading.get_ident(), None)
        return original(mode, *error)

    return leave


def _is_torchs(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)
