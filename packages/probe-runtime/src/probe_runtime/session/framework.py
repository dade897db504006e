"""Declare what a framework's package gives a session: rank, models, loss scalers, patches, and what opens a step."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from attrs import frozen

from probe_runtime.config.config import Config
from probe_runtime.patching.patches import Patches

from .step import RunningStep

#: Takes (directory, extra header keys) and returns the step. Raises OSError when nothing can be written.
OpenStep = Callable[[Path, Mapping[str, Any]], RunningStep]


@frozen
class Opened:
    """What a framework's package has ready for the steps of one configuration.

    patches: the patched functions.
    target_for: takes (dump_path, model), and returns the directory of this model's steps and what opens a step.
    """

    patches: Patches
    target_for: Callable[[Path, Any], tuple[Path, OpenStep]]


@frozen
class Framework:
    """What a session needs of a framework's package.

    package: the package's name, under which finished steps are logged.
    rank: returns this process's rank, None when not distributed.
    world_size: returns the number of processes of the run, None when not distributed.
    opened: gets ready for the steps of a configuration. Raises ConfigError when it cannot.
    modules: the framework's word for modules, for messages.
    models: returns the models in the user's argument ``model``. Raises UsageError when that is not a model.
    scalers: takes a function and returns a context, in which the function is called at each update that a loss scaler
        may skip, with another function, which returns whether the scaler skipped it.
    unstopped: returns whether step() is right without stop(), as in msprobe's guide to GRAPH_MODE.
    """

    package: str
    rank: Callable[[], int | None]
    world_size: Callable[[], int | None]
    opened: Callable[[Config], Opened]
    modules: str
    models: Callable[[Any], object]
    scalers: Callable[[Callable[[Callable[[], bool]], None]], AbstractContextManager[Any]]
    unstopped: Callable[[], bool] = bool
