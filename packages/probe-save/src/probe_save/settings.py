"""Resolve the configuration of single-point save: probe-runtime's keys, at level "debug"."""

import multiprocessing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probe_format.errors import ConfigError, Problem
from probe_format.excerpts import brief
from probe_format.layout import existing_dump
from probe_format.write import check_writable, explain, in_use
from probe_runtime.config import Config, ConfigFile, earlier_dump, load, resolve
from probe_runtime.notice import notice

_LEVEL = 'Write "debug" or leave it out here; levels L0, L1 and mix are PrecisionDebugger\'s (probe-torch).'


def settings(config_path: str | Path | None = None, **arguments: Any) -> Config:
    """Return the configuration of a file (JSON or YAML) and of arguments, which win.

    Raises ConfigError with every problem at once.
    """
    file: Mapping[str, Any] = {} if config_path is None else load(config_path)
    level = file.get("level")
    problems: list[Problem] = []
    if level is not None and level != "debug":
        where = file.place("level") if isinstance(file, ConfigFile) else "level"
        problems.append(Problem(where, f"{level!r} is not single-point save.", _LEVEL))
    chosen = arguments.get("level")
    if chosen is not None and chosen != "debug":
        problems.append(Problem("argument level", f"{brief(chosen)} is not single-point save.", _LEVEL))
    try:
        config = resolve(file, **{**arguments, "level": "debug"})
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from None
    if problems:
        raise ConfigError(problems)
    for text in config.warnings:
        notice(f"Probe: {text}")
    if config.async_dump:
        notice("Probe: async_dump: a value is on disk when save() returns, so async_dump has no effect.")
    return config


def is_child() -> bool:
    return multiprocessing.parent_process() is not None


def check_place(config: Config, rank: int | None) -> None:
    """Check dump_path. Raises ConfigError when it cannot be written, or holds an earlier dump of these steps."""
    try:
        unwritable = check_writable(config.dump_path)
        free = config.overwrite or unwritable or in_use(config.dump_path, rank)
        used = () if free else existing_dump(config.dump_path, rank, config.step)
    except OSError as error:
        unwritable, used = explain(error, config.dump_path), ()
    if unwritable is not None:
        raise ConfigError([Problem("dump_path", unwritable)])
    if is_child() and rank is None:
        return  # it writes beside the process that started it
    if used:
        raise ConfigError([earlier_dump(config.dump_path, used)])
