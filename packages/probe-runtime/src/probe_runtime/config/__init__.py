"""The configuration: msprobe's keys, from a file and from arguments, checked as a whole."""

from __future__ import annotations

from .config import Config
from .config_file import ConfigFile, load
from .cross_checks import earlier_dump
from .number_ranges import compact, parse_init_step
from .resolve import resolve

__all__ = ["Config", "ConfigFile", "compact", "earlier_dump", "load", "parse_init_step", "resolve"]
