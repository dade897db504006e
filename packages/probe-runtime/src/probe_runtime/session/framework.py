"""Describe what a session needs of a framework's package."""

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
    target_for: takes (dump_path, model) and returns the directory for the steps of this model, and what opens one.
    """

    patches: Patches
    target_for: Callable[[Path, Any], tuple[Path, OpenStep]]


@frozen
class Framework:
    """What a session needs of a framework's package.

    package: its name, which finished steps are logged under.
    rank: returns this process's rank, None when not distributed.
    world_size: returns the number of processes of the run, None when not distributed.
    opened: gets ready for a configuration. Raises ConfigError when it cannot.
    modules: what it calls its modules, for messages.
    models: returns the models in what the user gave as one. Raises UsageError when it is not a model.
    scalers: takes a function and returns a context in which that is called at each update that a loss scaler may skip,
        with a function that returns whether it has.
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
