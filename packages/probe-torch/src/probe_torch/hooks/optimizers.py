"""When an optimizer writes: from the beginning of its step to the end, whoever calls it and however it ends."""

from __future__ import annotations

import functools
import threading
from types import TracebackType
from typing import Any, Protocol

from probe_runtime.collect import guarded
from probe_runtime.patching import Attribute, Function, attribute
from torch.autograd.profiler import record_function
from torch.optim.optimizer import register_optimizer_step_pre_hook

from probe_torch.tensors.silent import OWN_OPTIMIZERS

__all__ = ["OptimizerSteps"]


class _Told(Protocol):
    def __call__(self, *, silent: bool) -> None: ...


class _Thread(threading.local):
    def __init__(self) -> None:
        self.steps: list[bool] = []


class OptimizerSteps:
    """While entered, `begins(silent=...)` and `ends(silent=...)` frame the step of every optimizer.

    silent: it is not known to raise the versions of what it writes. torch wraps the step of each subclass of
    Optimizer in a `record_function` and calls global hooks in it; no class is touched here.
    """

    def __init__(self, begins: _Told, ends: _Told) -> None:
        self._begins, self._ends = begins, ends
        self._thread = _Thread()
        self._places: list[Attribute] = []
        self._hook: Any = None

    def __enter__(self) -> OptimizerSteps:
        self._places = [
            attribute(record_function, "__enter__", self._entering),
            attribute(record_function, "__exit__", self._exiting),
        ]
        try:
            for place in self._places:
                place.put()
            self._hook = register_optimizer_step_pre_hook(
                guarded("an optimizer", "its step", self._before)
            )
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        for place in reversed(self._places):
            place.restore()

    def _entering(self, original: Function) -> Function:
        @functools.wraps(original)
        def enter(region: Any) -> Any:
            entered = original(region)
            if region.name.startswith("Optimizer.step#"):
                region._probe_step = self
                self._thread.steps.append(True)
                self._begins(silent=True)
            return entered

        return enter

    def _exiting(self, original: Function) -> Function:
        @functools.wraps(original)
        def leave(region: Any, *error: Any) -> Any:
            # Only what began here: start() and stop() may be called from inside a step.
            if getattr(region, "_probe_step", None) is self:
                del region._probe_step
                self._ends(silent=self._thread.steps.pop())
            return original(region, *error)

        return leave

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Called by torch within the step, with the optimizer."""
        steps = self._thread.steps
        if steps and steps[-1] and _raises_versions(optimizer):
            self._ends(silent=True)
            steps[-1] = False
            self._begins(silent=False)


def _raises_versions(optimizer: Any) -> bool:
    own = type(optimizer).__module__.startswith(OWN_OPTIMIZERS)
    return own and not any(group.get("fused") for group in optimizer.param_groups)
