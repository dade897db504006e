"""Open the session of a MindSpore debugger, of the kind that its configuration asks for; refuse what it cannot do."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from probe_format.errors import ConfigError, Problem
from probe_runtime.config import Config
from probe_runtime.notice import notice
from probe_runtime.session import (
    AnySession,
    Framework,
    KernelSession,
    Opened,
    SavingSession,
    Session,
    WatchSession,
    kernel_package,
    preflight,
)
from probe_save import Saver

from probe_mindspore.graph.taps import graph_mode
from probe_mindspore.hooks.modules import models_in
from probe_mindspore.hooks.scalers import watched_scalers
from probe_mindspore.module_kind import ModuleKind, detect
from probe_mindspore.ranks import LAUNCHER, current_rank, world_size
from probe_mindspore.watch.watcher import MindSporeWatcher

from .step import StepOpener

_NO_COMPILED = Problem(
    "compiled",
    "'eager' is for torch.compile. What MindSpore compiles is recorded as a graph, at level L0.",
    "Leave it out. To see each call inside a jitted function, run it without mindspore.jit.",
)
_NO_OPTIMIZER_GRAD = Problem(
    "optimizer_grad",
    "is for optimizers that read .grad. In MindSpore the step is called with the gradients.",
    "Leave it out, and save() what you call the optimizer with.",
)


def open_session(config: Config, tool: str, model: Any = None) -> AnySession:
    """Return a session with this configuration.

    Raises ConfigError with every problem, before anything runs, when it can't work.
    """
    module_kind = detect()
    models = partial(models_in, module_kind=module_kind)
    models(model)
    if config.level == "debug":  # probe-save does it
        _preflight(config, ())
        return SavingSession(config, Saver.of(config, tool, module_kind.framework), model)
    if config.level == "L2":
        return _kernels(config, model)
    _preflight(config, _refused(config))
    opened = partial(_opened, tool, module_kind)
    framework = Framework(
        "probe_mindspore", current_rank, world_size, opened, "Cells", models, watched_scalers, graph_mode
    )
    if not config.kind.calls:
        about = {"tool": tool, "framework": module_kind.framework}
        make = partial(MindSporeWatcher, module_kind=module_kind)
        return WatchSession(config, model, framework, make=make, about_file=about)
    return Session(config, model, framework)


def _opened(tool: str, module_kind: ModuleKind, config: Config) -> Opened:
    """Get ready for the steps of a configuration. Raises ConfigError when it cannot be done."""
    if problems := _refused(config):
        raise ConfigError(problems)
    opener = StepOpener(config, tool, module_kind)
    return Opened(opener.patches, opener.target_for)


def _refused(config: Config) -> list[Problem]:
    """Return what of a configuration is not for MindSpore."""
    asked = ((_NO_COMPILED, config.compiled == "eager"), (_NO_OPTIMIZER_GRAD, config.optimizer_grad))
    return [problem for problem, is_asked in asked if is_asked]


def _preflight(config: Config, found: Sequence[Problem]) -> None:
    preflight(config, current_rank(), world_size(), found, LAUNCHER)


def _kernels(config: Config, model: Any) -> KernelSession:
    """Return a session at level L2, for which alone probe-kernel is imported."""
    package = kernel_package()
    _preflight(config, package.mindspore_problems(config))
    for text in package.mindspore_notes(config):
        notice(f"Probe: {text}")
    return KernelSession(config, package.MindSporeKernels(config), current_rank, model)
