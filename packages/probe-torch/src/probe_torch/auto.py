"""Dump the steps of this run without another line in it: ``PROBE_CONFIG=probe.yaml`` and ``import probe_torch.auto``.

The same is done by ``probe run --config probe.yaml train.py``, where even that line is not needed.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from probe_format.errors import UsageError
from probe_runtime.auto import AutoSteps, FunctionSteps, named_by_job
from probe_runtime.config import StepRule
from probe_runtime.session import Debugger, Session

from .debugger import PrecisionDebugger
from .loop.scene import TorchScene
from .loop.taps import watched

_running: list[AutoSteps] = []


def begin(
    config_path: str | None = None, settings: Mapping[str, Any] | None = None, *, is_child: bool = False
) -> AutoSteps:
    """Look for the steps of this run from here on, until the process ends.

    config_path: a configuration file.
    settings: keys that win over it.
    is_child: whether another process of the run started this one, which may have nothing to train.

    Raises ConfigError with every problem at once.
    """
    if _running:
        return _running[0]
    session = PrecisionDebugger(config_path, **dict(settings or {})).session
    config = session.config
    if not isinstance(session, Session):
        raise UsageError(
            f"level {config.level} is for scripts that call Probe; probe run records at L0, L1 and mix."
        )
    scene = TorchScene(config.models)
    first = None if config.first_step == "auto" else int(config.first_step)
    steps = AutoSteps(
        session, scene, StepRule.of(config.step_ends), first, config.record_when == "grad", is_child=is_child
    )
    looking = ExitStack()  # for as long as the process lasts
    if steps.rule.kind == "calls":
        function = FunctionSteps(steps)
        steps.look = function.look
        looking.callback(function.close)
    looking.enter_context(watched(steps, scene))
    _running.append(steps)
    Debugger.gives_way = steps.give_up
    atexit.register(_end, looking, steps)
    return steps


def _end(looking: ExitStack, steps: AutoSteps) -> None:
    steps.finish()
    looking.close()


if (_file := named_by_job()) is not None:
    begin(_file)
