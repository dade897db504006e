"""Put together the session of a debugger of torch."""

from __future__ import annotations

from functools import partial

from probe_runtime.collect import Target
from probe_runtime.config import Config
from probe_runtime.notice import notice
from probe_runtime.patching import Apis
from probe_runtime.session import AnySession, Framework, Opened, SavingSession, Session, preflight
from probe_save import Saver

from probe_torch.hooks.modules import Model, models_in
from probe_torch.hooks.scalers import watched_scalers
from probe_torch.patching.apis import load_apis
from probe_torch.patching.patches import Patches
from probe_torch.ranks import current_rank, world_size
from probe_torch.saving import FRAMEWORK

from .level2 import open_kernels
from .step import StepOpener

_WANTS_MODEL = (
    "level {level} records modules, so it needs the model: start(model=...) "
    "or PrecisionDebugger(model=...). Level L1 works without."
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
    framework = Framework(
        "probe_torch", current_rank, partial(_opened, tool), _WANTS_MODEL, models_in, watched_scalers
    )
    return Session(config, model, framework)


def _opened(tool: str, config: Config) -> Opened:
    """Get ready for the steps of a configuration."""
    target = Target()
    patches = Patches(listed(config), target)
    return Opened(patches, StepOpener(config, tool, patches, target).target_for)


def listed(config: Config) -> Apis:
    """Return the functions to patch; an empty list at L0, where only modules are recorded."""
    if config.level == "L0":
        return Apis(())
    return load_apis(config.apis, views=config.views, risk_level=config.risk_level)
