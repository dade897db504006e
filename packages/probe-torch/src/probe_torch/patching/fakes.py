"""Leave out what torch computes for itself with fake tensors: shapes of DTensors, graphs that it traces."""

import contextlib
import functools
import os
import sys
import threading
from types import FrameType
from typing import Any

import torch
from probe_runtime.patching import Function, Held, muted, place, replaced
from torch._subclasses.fake_tensor import FakeTensorMode

_TORCH = os.path.dirname(torch.__file__) + os.sep
_BETWEEN = (contextlib.__file__, os.path.dirname(__file__))


class _FakeModes(threading.local):
    def __init__(self) -> None:
        self.entered: list[tuple[Any, contextlib.ExitStack]] = []


_thread = _FakeModes()


def quiet_fakes() -> Held:
    """Record nothing that runs under a FakeTensorMode that torch itself has entered, until the result is undone.

    Calls under a mode that the user enters are recorded, and their tensors have no numbers.
    """
    places = [place(FakeTensorMode, "__enter__", _entering), place(FakeTensorMode, "__exit__", _leaving)]
    return replaced(places, _leave_all)


def _leave_all() -> None:
    """Leave the modes that this thread is still in, as stop() was called inside them."""
    while _thread.entered:
        _thread.entered.pop()[1].close()


def _entering(original: Function) -> Function:
    @functools.wraps(original)
    def enter(mode: Any) -> Any:
        entered = original(mode)
        with contextlib.ExitStack() as stack:
            if _is_torchs(sys._getframe(1)):
                stack.enter_context(muted())
            _thread.entered.append((mode, stack.pop_all()))
        return entered

    return enter


def _leaving(original: Function) -> Function:
    @functools.wraps(original)
    def leave(mode: Any, *error: Any) -> Any:
        if _thread.entered and _thread.entered[-1][0] is mode:  # else it was entered before start()
            _thread.entered.pop()[1].close()
        return original(mode, *error)

    return leave


def _is_torchs(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)
