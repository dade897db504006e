"""Make a `Config` from the content of a file and from arguments, checked as a whole."""

from collections.abc import Mapping
from typing import Any

import attrs
from probe_format.errors import ConfigError, Problem
from probe_format.excerpts import cut
from probe_format.suggest import did_you_mean
from probe_format.task import TASKS

from .config import SECTIONS, Config, keys_of
from .config_file import ConfigFile
from .cross_checks import contradictions, hindrances
from .entries import ConfigEntry, Findings, entries
from .keys import NOT_WATCHED


def resolve(file: Mapping[str, Any] | None = None, **arguments: Any) -> Config:
    """Return the configuration of a file and of arguments, which win.

    file: the mapping that `load` returns, or any other.
    arguments: named as the keys; one that is None counts as not given. Relative paths start at the working directory.

    Raises ConfigError with every problem at once.
    """
    given = {} if file is None else file
    if not isinstance(given, Mapping):
        raise ConfigError([Problem("config", f"must be a mapping, not {given!r}.", "Use load() for a file.")])
    place = given.place if isinstance(given, ConfigFile) else str
    findings = Findings(keys_of(arguments.get("level") or given.get("level")))
    values: dict[str, Any] = {}
    places: dict[str, str] = {}

    task = arguments.get("task") or given.get("task") or SECTIONS[0]
    known = findings.keys
    for key in arguments.keys() - known.keys():
        what = f"{key!r} is not a key of the configuration."
        findings.problems.append(Problem(f"argument {key}", what, did_you_mean(key, known)))
    chosen = {
        k: ConfigEntry(k, v, f"argument {k}") for k, v in arguments.items() if v is not None and k in known
    }
    for entry in [*entries(given, task, place, findings), *chosen.values()]:
        if chosen.get(entry.key, entry) is not entry:
            beaten = Findings(known)
            beaten.check(entry)
            findings.warnings.extend(f"{p} (Without effect: the argument wins.)" for p in beaten.problems)
        else:
            values[entry.key] = findings.check(entry)
            places[entry.key] = entry.where
    if not findings.problems:
        config = _fill(values, places, findings)
        findings.problems.extend(contradictions(config, lambda key: places.get(key, key)))
        if not findings.problems:
            findings.warnings.extend(hindrances(config, lambda key: places.get(key, key)))
            return attrs.evolve(config, warnings=tuple(cut(text, 1000) for text in findings.warnings))
    raise ConfigError(findings.problems)


def _fill(values: dict[str, Any], places: dict[str, str], findings: Findings) -> Config:
    """Return the configuration, with the defaults that depend on other values.

    values: key -> its checked value.
    places: key -> where it was given.
    """
    if "dump_path" not in values:
        findings.warnings.append(f"dump_path is not set; writing to {Config().dump_path}.")
    # A structure without modules would be a plain list of calls: msprobe takes L1 as mix here, and so does Probe.
    task = TASKS[values.get("task", SECTIONS[0])]
    if not task.values and values.setdefault("level", "mix") == "L1":
        values["level"] = "mix"
        findings.warnings.append(
            f"{places['level']}: task {task.name!r} needs modules, so L1 is taken as mix."
        )
    if not task.calls:
        idle = [places[key] for key in places if key in NOT_WATCHED]
        findings.warnings.extend(
            f"{where}: task {task.name!r} records no calls; no effect." for where in idle
        )
        values = {key: value for key, value in values.items() if key not in NOT_WATCHED} | {"level": "L0"}
    if values.get("level") == "L2":
        _fill_kernels(values, places, findings)
    return Config(**values)


def _fill_kernels(values: dict[str, Any], places: dict[str, str], findings: Findings) -> None:
    """Change the values of the keys that mean something else at level "L2", in MindSpore's kernel dump."""
    if isinstance(values.get("summary_mode"), tuple):
        values["statistic_category"] = values.pop("summary_mode")
    if "precision" in values and values.get("device") != "device":
        findings.warnings.append(
            f"{places['precision']}: has no effect: at level 'L2' it is for statistics that the device computes "
            '("device": "device").'
        )
    values.setdefault("precision", "high")  # msprobe's and MindSpore's own default there
