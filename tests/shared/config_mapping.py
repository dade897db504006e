"""The way back from a `Config` to what a file would hold: the configuration's round trip is tested with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import asdict
from probe_runtime.config.config import SECTIONS, Config, keys_of
from probe_runtime.config.mapping_keys import Keep, Then
from probe_runtime.config.number_ranges import compact

__all__ = ["as_mapping"]

_KERNEL_DEFAULTS = {"device": "host", "file_format": "npy", "precision": "high"}


def as_mapping(config: Config) -> dict[str, Any]:
    """Return the configuration as a file would hold it, JSON-ready; `resolve` of it gives an equal Config."""
    top: dict[str, Any] = {}
    section: dict[str, Any] = {}
    for name, declared in keys_of(config.level).items():
        value = getattr(config, name)
        if name == "summary_mode" and config.statistic_category:
            value = config.statistic_category
        if value is None or (config.level == "L2" and _KERNEL_DEFAULTS.get(name) == value):
            continue
        if name in ("rank", "step"):
            value = compact(value)
        elif isinstance(value, Keep | Then):
            value = {key: part for key, part in asdict(value).items() if part is not None}
        elif name == "when":
            value = [str(condition) for condition in value]
        elif isinstance(value, tuple | frozenset):
            value = [*(sorted(value) if isinstance(value, frozenset) else value)]
        elif isinstance(value, Path):
            value = str(value)
        (section if declared.section else top)[name] = value
    assert config.task in SECTIONS
    return {**top, config.task: section}
