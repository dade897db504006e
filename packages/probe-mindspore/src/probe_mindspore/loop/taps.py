"""Find the forwards and updates of a run, by watching the calls of Cells and of compiled functions."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from mindspore import nn
from probe_format.excerpts import unsignalled
from probe_runtime.auto import AutoSteps
from probe_runtime.patching import Function, listening, place

from probe_mindspore.hooks import autograd
from probe_mindspore.hooks.modules import watched_calls
from probe_mindspore.patching.compile_hook import API
from probe_mindspore.patching.reach import OPTIMIZERS, Reach
from probe_mindspore.patching.traced_jit import is_tracing

from .scene import MindSporeScene

Over = Callable[[], None]


@contextmanager
def watched(steps: AutoSteps, scene: MindSporeScene) -> Iterator[None]:
    """Tell ``steps`` of every forward that trains and every update, and ``scene`` of new optimizers, while open."""
    places = [place(kind, "__init__", _after, _optimizer_made) for kind in OPTIMIZERS]
    if scene.named:
        places += [place(nn.Cell, name, _after, _cell_made) for name in ("__init__", "__setstate__")]
    calls = _TrainingCalls(steps, scene)
    places.append(place(API._JitExecutor, "__call__", _executing))
    with listening(_watching, calls, places), watched_calls(calls.cell):
        yield


class _Innermost(threading.local):
    """Hold what is known of the innermost call of this thread that was told to the steps.

    all_told: whether nothing inside that call is to be told.
    is_call: whether there is such a call.
    """

    all_told = False
    is_call = False


def _sheltered(event: Function) -> Function:
    @functools.wraps(event)
    def method(calls: _TrainingCalls, *about: Any) -> Over | None:
        if calls.steps.over:
            return None
        try:
            over: Over | None = event(calls, *about)
        except unsignalled(Exception) as e:
            calls.steps.met(e)
            return None
        return over

    return method


class _TrainingCalls:
    """Tell which calls are forwards, updates, or both at once."""

    def __init__(self, steps: AutoSteps, scene: MindSporeScene) -> None:
        self.steps = steps
        self.scene = scene
        self._inside = _Innermost()

    @_sheltered
    def cell(self, cell: Any, args: tuple[Any, ...]) -> Over | None:
        """Take the beginning of a call of a Cell; return what is to be called at its end."""
        inside = self._inside
        if is_tracing():
            return None
        if isinstance(cell, OPTIMIZERS):
            self.steps.update_begins()
            self.steps.stepping(cell)
            return self._inside_of(self.steps.update_ends)
        if inside.all_told:
            return None
        if optimizers := self.scene.held_by(cell):
            self.steps.whole_step_begins(optimizers)
            return self._inside_of(self.steps.update_ends)
        recording = autograd.recording()
        if inside.is_call and not recording:
            return None
        self.steps.called(cell)
        return self._inside_of(None, all_told=recording)

    @_sheltered
    def compiled(self, executor: Any, args: tuple[Any, ...]) -> Over | None:
        """Take the beginning of a call of a compiled function; return what is to be called at its end."""
        inside = self._inside
        if inside.all_told or inside.is_call or is_tracing():
            return None
        reach = Reach.of(executor.fn, executor.obj, *args)
        if reach.optimizers:
            self.steps.whole_step_begins(reach.optimizers)
            return self._inside_of(self.steps.update_ends)
        cell = next((one for one in reach.cells if self.scene.root_of(one) is not None), None)
        if cell is None:
            return None
        self.steps.called(cell, differentiated=reach.takes_gradients)
        return self._inside_of(None, all_told=True)

    def _inside_of(self, ended: Over | None, *, all_told: bool = True) -> Over:
        inside = self._inside
        before = inside.all_told, inside.is_call
        inside.all_told, inside.is_call = all_told, True

        def over() -> None:
            inside.all_told, inside.is_call = before
            if ended is not None:
                ended()

        return over


_watching: list[_TrainingCalls] = []


def _after(original: Function, tell: Callable[[_TrainingCalls, Any], None]) -> Function:
    """Tell of each object that a method was called on: ``__init__``, or ``__setstate__``, which makes a copy."""

    @functools.wraps(original)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for calls in tuple(_watching):
            tell(calls, self)

    return call


def _optimizer_made(calls: _TrainingCalls, optimizer: Any) -> None:
    calls.steps.optimizer_made(optimizer)


def _cell_made(calls: _TrainingCalls, cell: Any) -> None:
    calls.scene.module_made(cell)


def _executing(original: Function) -> Function:
    @functools.wraps(original)
    def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for calls in tuple(_watching):
                over = calls.compiled(executor, (*args, *kwargs.values()))
                if over is not None:
                    stack.callback(over)
            return original(executor, *args, **kwargs)

    return call
