"""Find the package that plans for a model: the one that knows its framework.

A framework's package is found by its entry point in the group ``probe.frameworks``, whose name is the first part of the
module of the framework's classes. The package offers ``plan(model, config, *inputs, **keywords)``; its room `planning`
has ``without_memory()`` where the framework can make tensors without memory.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from typing import Any

from probe_format.errors import UsageError

from probe_runtime.collect.module_table import kind_of

from .dump_plan import DumpPlan


def planner_of(model: object) -> Callable[..., DumpPlan]:
    """Return the function that plans for this model. Raises UsageError when none is installed."""
    packages = _packages()
    tops = [str(cls.__module__).partition(".")[0] for cls in type(model).__mro__]
    if "mindspore" in tops:  # before a torch built on MindSpore
        tops = ["mindspore"]
    package = next((packages[top] for top in tops if top in packages), None)
    if package is None:
        raise UsageError(
            f"No package that is installed here plans for {kind_of(model)}. For a torch.nn.Module: pip install "
            "probe-torch. For a mindspore.nn.Cell: pip install probe-mindspore."
        )
    found: Callable[..., DumpPlan] = importlib.import_module(package).plan
    return found


def without_memory() -> AbstractContextManager[Any]:
    """Return a context in which new tensors have no memory. Raises UsageError where no framework here can do it."""
    for package in _packages().values():
        make = _offered(package)
        if make is not None:
            return make()
    raise UsageError(
        "--meta is for torch, whose tensors can be made without memory; probe-torch is not installed here."
    )


def _offered(package: str) -> Callable[[], AbstractContextManager[Any]] | None:
    try:
        return getattr(importlib.import_module(f"{package}.planning"), "without_memory", None)
    except ImportError:  # its framework is not there
        return None


def _packages() -> dict[str, str]:
    """Return the packages that are installed, by the framework that each knows."""
    return {entry.name: entry.module.partition(".")[0] for entry in entry_points(group="probe.frameworks")}
