"""Start to look for the steps of a run that calls nothing of Probe, and go on until the process ends."""

import atexit
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

from probe_format.errors import UsageError

from probe_runtime.config import StepRule
from probe_runtime.session import Debugger, Session

from .function_steps import FunctionSteps
from .scene import Scene
from .steps import AutoSteps

S = TypeVar("S", bound=Scene)
_running: list[AutoSteps] = []


def search(
    debugger: Callable[..., Debugger],
    scene_with: Callable[[tuple[str, ...]], S],
    watched: Callable[[AutoSteps, S], AbstractContextManager[None]],
    config_path: str | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    is_child: bool = False,
) -> AutoSteps:
    """Look for the steps of this run from here on.

    debugger: makes the framework's debugger.
    scene_with: makes the framework's scene, with the names of the models' classes.
    watched: a context in which the steps are told what the framework does.
    config_path: a configuration file.
    settings: keys that win over it.
    is_child: whether another process of the run started this one, which may have nothing to train.

    Raises ConfigError with every problem at once.
    """
    if _running:
        return _running[0]
    session = debugger(config_path, **dict(settings or {})).session
    config = session.config
    if not isinstance(session, Session):
        raise UsageError(
            f"level {config.level} is for scripts that call Probe; probe run records at L0, L1 and mix."
        )
    scene = scene_with(config.models)
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
    looking.callback(steps.finish)
    atexit.register(looking.close)
    return steps
