"""Read a configuration, with msprobe's keys, from a file and from arguments, and check it as a whole."""

from __future__ import annotations

from .condition import Condition
from .config import Config
from .config_file import ConfigFile, load
from .cross_checks import earlier_dump
from .number_ranges import compact, parse_init_step
from .resolve import resolve
from .step_rule import StepRule
from .then import Then

__all__ = [
    "Condition",
    "Config",
    "ConfigFile",
    "StepRule",
    "Then",
    "compact",
    "earlier_dump",
    "load",
    "parse_init_step",
    "resolve",
]
