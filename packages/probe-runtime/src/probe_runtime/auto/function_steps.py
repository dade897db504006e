"""Make each call of a function a step, wherever the run has it from."""

import functools
from contextlib import ExitStack
from typing import Any

from attrs import define, field

from probe_runtime.patching import Function, go_down, is_function, listening, place, resolve_owner

from .steps import AutoSteps

_watching: list[AutoSteps] = []


@define(eq=False)
class FunctionSteps:
    """Replace the function of a rule ``calls:<package.module:function>`` as soon as it is there.

    steps: are told of its calls.
    """

    steps: AutoSteps
    _undo: ExitStack = field(factory=ExitStack)
    _is_found: bool = False

    def look(self) -> None:
        """Look whether it is there by now."""
        module, _, name = self.steps.rule.which.partition(":")
        base = None if self._is_found else resolve_owner(module)
        if base is None:
            return
        owner, last = go_down(base, name)
        if owner is not None and is_function(owner, last):
            self._is_found = True
            self._undo.enter_context(listening(_watching, self.steps, [place(owner, last, _stepping)]))

    def close(self) -> None:
        """Put it back."""
        self._undo.close()


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
