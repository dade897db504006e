"""The configuration: msprobe's keys, from a file and from arguments, checked as a whole."""

from __future__ import annotations

from .config import Config, load, resolve
from .config_file import ConfigFile
from .number_ranges import compact, parse_init_step

__all__ = ["Config", "ConfigFile", "compact", "load", "parse_init_step", "resolve"]
