"""Open the session that a PyTorch debugger's configuration asks for."""

from functools import partial

from probe_runtime.config import Config
from probe_runtime.session import (
    AnySession,
    Framework,
    Opened,
    SavingSession,
    Session,
    WatchSession,
    preflight,
)
from probe_save import Saver

from probe_torch.hooks.modules import Model, models_in
from probe_torch.hooks.scalers import watched_scalers
from probe_torch.ranks import current_rank, world_size
from probe_torch.saving import FRAMEWORK
from probe_torch.watch.watcher import TorchWatcher

from .level2 import open_kernels
from .step import StepOpener


def open_session(config: Config, model: Model | None, tool: str) -> AnySession:
    """Return a session with this configuration.

    Raises ConfigError with every problem, before anything runs, when the configuration cannot work.
    """
    models_in(model)
    if config.level == "L2":
        return open_kernels(config, model)
    preflight(config, current_rank(), world_size())
    if config.level == "debug":  # probe-save does it; no function is replaced and no model is needed
        return SavingSession(config, Saver.of(config, tool, FRAMEWORK), model)
    opened, scalers = partial(_opened, tool), watched_scalers
    framework = Framework("probe_torch", current_rank, world_size, opened, "modules", models_in, scalers)
    if not config.kind.calls:
        about = {"tool": tool, "framework": FRAMEWORK}
        return WatchSession(config, model, framework, make=TorchWatcher, about_file=about)
    return Session(config, model, framework)


def _opened(tool: str, config: Config) -> Opened:
    """Return the patches of a configuration, and a function that opens its steps."""
    opener = StepOpener(config, tool)
    return Opened(opener.patches, lambda dump_path, model: (dump_path, opener.open))
