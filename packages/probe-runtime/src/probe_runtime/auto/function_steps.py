"""Make each call of a function a step: the one that the configuration's key `step_ends` names (rule `calls`)."""

import functools
import inspect
from contextlib import ExitStack
from types import CodeType
from typing import Any

from attrs import define, field

from probe_runtime.patching import Function, go_down, is_function, listening, place, resolve_owner

from .steps import AutoSteps

_RUNS_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_watching: list[AutoSteps] = []


@define(eq=False)
class FunctionSteps:
    """Replace the function of a rule ``calls:<package.module:function>`` as soon as it is there.

    steps: is told of the function's calls.
    """

    steps: AutoSteps
    _undo: ExitStack = field(factory=ExitStack)
    _is_found: bool = False
    _first: CodeType | None = None

    def look(self) -> None:
        """Replace the function if it is there by now, and tell the end of a call that was found running."""
        if self._first is not None and not _is_called(self._first):
            self._first = None
            self.steps.function_ended()
        module, _, name = self.steps.rule.which.partition(":")
        base = None if self._is_found else resolve_owner(module)
        if base is None:
            return
        owner, last = go_down(base, name)
        if owner is not None and is_function(owner, last):
            self._is_found = True
            code = getattr(inspect.unwrap(getattr(owner, last)), "__code__", None)
            if code is not None and code.co_flags & _RUNS_LATER:
                self.steps.give_up(
                    f"a call of {self.steps.rule.which} returns before it runs (async def, or yield). For step_ends, "
                    "name a function that such a step calls."
                )
                return
            if code is not None and _is_called(code):
                self._first = code
                self.steps.function_runs()
            self._undo.enter_context(listening(_watching, self.steps, [place(owner, last, _stepping)]))

    def close(self) -> None:
        """Put the function back."""
        self._undo.close()


def _is_called(code: CodeType) -> bool:
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def _stepping(original: Function) -> Function:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        for steps in tuple(_watching):
            steps.function_begins()
        try:
            return original(*args, **kwargs)
        finally:
            for steps in tuple(_watching):
                steps.function_ended()

    return call
