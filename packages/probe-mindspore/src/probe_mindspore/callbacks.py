"""Dump the steps of a `mindspore.train.Model` by callbacks, since it has no loop to edit."""

import contextlib
from typing import Any

import mindspore
from mindspore.train import Callback
from probe_format.errors import UsageError
from probe_runtime.notice import notice

from .debugger import PrecisionDebugger


class ProbeStep(Callback):  # type: ignore[misc]
    """Call start, stop and step of a debugger around each training step.

    The model is the one given to ``debugger.start(model)`` before, or else the network of the `Model`. Raises
    UsageError when ``debugger`` is not a PrecisionDebugger.
    """

    def __init__(self, debugger: PrecisionDebugger) -> None:
        super().__init__()
        if not isinstance(debugger, PrecisionDebugger):
            raise UsageError(f"ProbeStep wants a PrecisionDebugger; got a {type(debugger).__name__}.")
        self._debugger = debugger

    def on_train_step_begin(self, run_context: Any) -> None:
        """Start collecting, unless ``debugger.start(model)`` has done so already."""
        session = self._debugger._session
        if session.closed or session.collecting:
            return  # debugger.start(model) has begun the step already
        model = session.model
        if model is None:
            model = getattr(run_context.original_args(), "network", None)
        session.start(model, None)

    def on_train_step_end(self, run_context: Any) -> None:
        """Stop collecting and end the step."""
        session = self._debugger._session
        if session.collecting:
            session.stop()
        if not session.closed:
            session.step()

    def on_train_end(self, run_context: Any) -> None:
        """Stop collecting, in case training ended inside a step."""
        session = self._debugger._session
        if session.collecting:
            session.stop()


class ProbeInitStep(Callback):  # type: ignore[misc]
    """Continue to count steps where the checkpoint of a resumed run ended. Put it before `ProbeStep`."""

    def on_train_begin(self, run_context: Any) -> None:
        """Count from the step at which the `Model` begins."""
        number = run_context.original_args().cur_step_num
        session = PrecisionDebugger._current
        if number and session is not None and not session.closed:
            if session.collecting:
                notice(
                    f"Probe: ProbeInitStep would count from step {number}, but debugger.start(model) has begun a step "
                    f"already. Call debugger.set_init_step({number}) before it."
                )
            else:
                session.set_init_step(number)
        # The kernel dump of graph mode has a count of its own.
        with contextlib.suppress(Exception):
            mindspore._c_expression._set_init_iter(number)


#: The names that msprobe has for them: a script changes one import.
MsprobeStep = ProbeStep
MsprobeInitStep = ProbeInitStep
