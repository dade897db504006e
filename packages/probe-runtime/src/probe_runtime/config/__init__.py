"""Read a configuration, with msprobe's keys, from a file and from arguments, and check it as a whole."""

from .condition import Condition
from .config import Config
from .config_file import ConfigFile, load
from .cross_checks import path_problem
from .entries import ConfigEntry, Findings
from .keys import declared_keys, key
from .mapping_keys import Then
from .number_ranges import compact, parse_init_step
from .resolve import resolve
from .settings import AllSettings, Settings, StepNumbers
from .step_rule import StepRule
from .value_checks import Check, Checked, choice, flag

__all__ = [
    "AllSettings", "Check", "Checked", "Condition", "Config", "ConfigEntry", "ConfigFile", "Findings", "Settings",
    "StepNumbers", "StepRule", "Then", "choice", "compact", "declared_keys", "flag", "key", "load",
    "parse_init_step", "path_problem", "resolve",
]  # fmt: skip
