"""Put together the session of a debugger of torch."""

from functools import partial

from probe_runtime.collect import Target
from probe_runtime.config import Config
from probe_runtime.notice import notice
from probe_runtime.patching import Apis
from probe_runtime.session import (
    AnySession,
    Framework,
    Opened,
    SavingSession,
    Session,
    WatchSession,
    keep_to,
    preflight,
)
from probe_save import Saver

from probe_torch.hooks.modules import Model, models_in
from probe_torch.hooks.scalers import watched_scalers
from probe_torch.patching.apis import load_apis
from probe_torch.patching.patches import Patches
from probe_torch.ranks import current_rank, world_size
from probe_torch.saving import FRAMEWORK
from probe_torch.watch.watcher import TorchWatcher

from .level2 import open_kernels
from .step import StepOpener

_WANTS_MODEL = (
    "level {level} records modules, so it needs the model: start(model=...) "
    "or PrecisionDebugger(model=...). Level L1 works without."
)
_WANTS_MODEL_TO_WATCH = (
    "task watch names parameters as the model does, so it needs one: start(model=...) or "
    "PrecisionDebugger(model=...)."
)


def open_session(config: Config, model: Model | None, tool: str) -> AnySession:
    """Return a session with this configuration.

    Raises ConfigError with every problem, before anything runs, when it can't work.
    """
    models_in(model)
    if config.level == "L2":
        return open_kernels(config, model)
    for text in preflight(config, current_rank(), world_size()):
        notice(f"Probe: {text}")
    if config.level == "debug":  # probe-save does it; no function is replaced and no model is needed
        return SavingSession(config, Saver.of(config, tool, FRAMEWORK), model)
    opened = _watching if config.task == "watch" else partial(_opened, tool)
    wants_model = _WANTS_MODEL_TO_WATCH if config.task == "watch" else _WANTS_MODEL
    framework = Framework(
        "probe_torch", current_rank, world_size, opened, wants_model, models_in, watched_scalers
    )
    if config.task == "watch":
        about = {"tool": tool, "framework": "pytorch"}
        return WatchSession(config, model, framework, make=TorchWatcher, about_file=about)
    return Session(config, model, framework)


def _opened(tool: str, config: Config) -> Opened:
    """Get ready for the steps of a configuration."""
    keep_to(config, watch=False)
    target = Target()
    patches = Patches(listed(config), target)
    return Opened(patches, StepOpener(config, tool, patches, target).target_for)


def _watching(config: Config) -> Opened:
    keep_to(config, watch=True)
    patches = Patches(Apis(()), Target())
    return Opened(patches, StepOpener(config, "", patches, Target()).target_for)  # of which none is opened


def listed(config: Config) -> Apis:
    """Return the functions to patch; an empty list at L0, where only modules are recorded."""
    if config.level == "L0":
        return Apis(())
    return load_apis(config.apis, views=config.views, risk_level=config.risk_level)
