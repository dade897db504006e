"""Check what is to be planned, before a step of it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probe_format.errors import UsageError

from probe_runtime.config.config import Config
from probe_runtime.config.config_file import load
from probe_runtime.config.resolve import resolve


def wanted(config: Config | Mapping[str, Any] | str | Path, *, collecting: bool) -> Config:
    """Return the configuration to plan for.

    config: the path of a configuration, its keys as a dict, or a Config.
    collecting: whether a dump is being made at the moment.

    Raises ConfigError when it is wrong; UsageError where its level records no calls, and while a dump is made.
    """
    if not isinstance(config, Config):
        config = resolve(load(str(config)) if isinstance(config, (str, Path)) else config)
    if config.level not in ("L0", "L1", "mix"):
        raise UsageError(f"Levels L0, L1 and mix can be planned; this configuration's is {config.level}.")
    if collecting:
        raise UsageError("A dump is being made here. Plan before start(), or after stop().")
    return config
