"""Describe what a session needs of a framework's package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from attrs import frozen

from probe_runtime.config.config import Config

from .step import RunningStep

#: Takes (directory, extra header keys) and returns the step. Raises OSError when nothing can be written.
OpenStep = Callable[[Path, Mapping[str, Any]], RunningStep]


#: Takes (dump_path, model) and returns the directory for the steps of this model, and what opens one.
TargetFor = Callable[[Path, Any], tuple[Path, OpenStep]]


def _no_scalers(told: Callable[[Callable[[], bool]], None]) -> AbstractContextManager[None]:
    """Return a context in which no loss scaler is seen."""
    return nullcontext()


@frozen
class Framework:
    """What a session needs of a framework's package.

    package: its name, which finished steps are logged under.
    rank: returns this process's rank, None when not distributed.
    target_for: takes (dump_path, model) and returns the directory for the steps of this model, and what opens one.
    wants_model: message for level L0 or mix without a model; ``{level}`` is filled in.
    models: returns the models in what the user gave as one. Raises UsageError when it is not a model.
    unstopped: returns whether step() is right without stop(), as in msprobe's guide to GRAPH_MODE.
    with_config: takes another configuration and returns the patched functions and ``target_for`` of its steps; None
        where all steps have one.
    scalers: takes a function and returns a context in which that is called at each update that a loss scaler may skip,
        with a function that returns whether it has.
    """

    package: str
    rank: Callable[[], int | None]
    target_for: TargetFor
    wants_model: str
    models: Callable[[Any], object]
    unstopped: Callable[[], bool] = bool
    with_config: Callable[[Config], tuple[Any, TargetFor]] | None = None
    scalers: Callable[[Callable[[Callable[[], bool]], None]], AbstractContextManager[None]] = _no_scalers
