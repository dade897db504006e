"""Leave out what torch computes for itself with fake tensors: shapes of DTensors, graphs that it traces."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from probe_runtime.patching import Function, attribute, replaced
from torch._subclasses.fake_tensor import FakeTensorMode

from .wrappers import muted

__all__ = ["quiet_fakes"]

_TORCH = os.path.dirname(torch.__file__) + os.sep
_BETWEEN = (contextlib.__file__, os.path.dirname(__file__))


class _Thread(threading.local):
    def __init__(self) -> None:
        self.entered: list[contextlib.ExitStack] = []


@contextlib.contextmanager
def quiet_fakes() -> Iterator[None]:
    """Record nothing that runs under a FakeTensorMode that torch itself has entered, while this is open.

    Calls under a mode that the user enters are recorded, and their tensors have no numbers.
    """
    thread = _Thread()

    def entering(original: Function) -> Function:
        @functools.wraps(original)
        def enter(mode: Any) -> Any:
            entered = original(mode)
            with contextlib.ExitStack() as stack:
                if _is_torchs(sys._getframe(1)):
                    stack.enter_context(muted())
                thread.entered.append(stack.pop_all())
            return entered

        return enter

    def leaving(original: Function) -> Function:
        @functools.wraps(original)
        def leave(mode: Any, *error: Any) -> Any:
            if thread.entered:  # else it was entered before start()
                thread.entered.pop().close()
            return original(mode, *error)

        return leave

    places = [
        attribute(FakeTensorMode, "__enter__", entering),
        attribute(FakeTensorMode, "__exit__", leaving),
    ]
    with replaced(places):
        yield


def _is_torchs(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)
