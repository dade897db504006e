"""The configuration: msprobe's keys from a file and from arguments, checked as a whole (spec/config.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
from probe_format.errors import ConfigError, Problem
from probe_format.excerpts import cut
from probe_format.suggest import did_you_mean

from .config_file import ConfigFile, load
from .cross_checks import contradictions, hindrances
from .entries import Entry, Findings, entries
from .keys import SECTIONS, keys_of
from .number_ranges import compact

__all__ = ["Config", "as_mapping", "check_rank", "load", "resolve"]


def _default_path() -> Path:
    return Path("dump_path").absolute()


@attrs.frozen(kw_only=True)
class Config:
    """What to dump, and how; spec/config.md has each key. Made by `resolve`; this class checks nothing.

    Empty rank, step, scope or list means all. async_bytes: bound in bytes of what waits to be written.
    """

    task: Literal["statistics", "tensor", "structure"] = "statistics"
    level: Literal["L0", "L1", "mix", "debug", "L2"] = "L1"
    dump_path: Path = attrs.field(factory=_default_path)
    rank: tuple[int, ...] = ()
    step: tuple[int, ...] = ()
    scope: tuple[str, ...] = ()
    list: tuple[str, ...] = ()
    tensor_list: tuple[str, ...] = ()
    data_mode: frozenset[str] = frozenset({"all"})
    summary_mode: Literal["statistics", "md5", "xor"] = "statistics"
    precision: Literal["low", "high"] = "low"
    extra_info: bool = True
    async_dump: bool = False
    async_bytes: int = 1 << 30
    risk_level: Literal["ALL", "FOCUS", "CORE"] = "ALL"
    views: bool = False
    apis: Path | None = None
    zero_count: bool = False
    overwrite: bool = False
    max_faults: int = 100
    share: bool = True
    device: Literal["host", "device"] = "host"
    """Where statistics of kernels are computed (level "L2" on MindSpore)."""
    file_format: Literal["npy", "bin"] = "npy"
    """What kernels' tensors are saved as (level "L2" on MindSpore, O2)."""
    statistic_category: tuple[str, ...] = ()
    """What `summary_mode` lists at level "L2", in MindSpore's and msprobe's words."""
    warnings: tuple[str, ...] = attrs.field(default=(), eq=False)
    """Sentences for the user: keys without effect, settings that hinder each other."""


def resolve(file: Mapping[str, Any] | None = None, **arguments: Any) -> Config:
    """The configuration from a file's mapping (`load`, or any mapping) and arguments, which win.

    Arguments are named as the keys; one that is None counts as not given. Relative paths start at the
    working directory. Raises ConfigError with every problem at once.
    """
    given = {} if file is None else file
    if not isinstance(given, Mapping):
        raise ConfigError([Problem("config", f"must be a mapping, not {given!r}.", "Use load() for a file.")])
    place = given.place if isinstance(given, ConfigFile) else str
    findings = Findings(keys_of(arguments.get("level") or given.get("level")))
    values: dict[str, Any] = {}
    places: dict[str, str] = {}

    task = arguments.get("task") or given.get("task") or "statistics"
    known = findings.keys
    for key in arguments.keys() - known.keys():
        what = f"{key!r} is no key of the configuration."
        findings.problems.append(Problem(f"argument {key}", what, did_you_mean(key, known)))
    chosen = {k: Entry(k, v, f"argument {k}") for k, v in arguments.items() if v is not None and k in known}
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
    """Defaults that depend on other values."""
    if "dump_path" not in values:
        findings.warnings.append(f"dump_path is not set; writing to {_default_path()}.")
    # A structure without modules is a plain list of calls: msprobe takes L1 as mix here, and so do we.
    if values.get("task") == "structure" and values.setdefault("level", "mix") == "L1":
        values["level"] = "mix"
        findings.warnings.append(f"{places['level']}: task 'structure' needs modules, so L1 is taken as mix.")
    if values.get("level") == "L2":
        _fill_kernels(values, places, findings)
    return Config(**values)


def _fill_kernels(values: dict[str, Any], places: dict[str, str], findings: Findings) -> None:
    """The keys that level "L2" takes in another way: as MindSpore's kernel dump does."""
    if isinstance(values.get("summary_mode"), tuple):
        values["statistic_category"] = values.pop("summary_mode")
    if "precision" in values and values.get("device") != "device":
        findings.warnings.append(
            f"{places['precision']}: has no effect: at level 'L2' it is for statistics that the device computes "
            '("device": "device").'
        )
    values.setdefault("precision", "high")  # msprobe's and MindSpore's own default there


_KERNEL_DEFAULTS = {"device": "host", "file_format": "npy", "precision": "high"}


def as_mapping(config: Config) -> dict[str, Any]:
    """The configuration as a file would hold it, JSON-ready; `resolve` of it gives an equal Config."""
    top: dict[str, Any] = {}
    section: dict[str, Any] = {}
    for name, key in keys_of(config.level).items():
        value = getattr(config, name)
        if name == "summary_mode" and config.statistic_category:
            value = config.statistic_category
        if value is None or (config.level == "L2" and _KERNEL_DEFAULTS.get(name) == value):
            continue
        if name in ("rank", "step"):
            value = compact(value)
        elif isinstance(value, tuple | frozenset):
            value = [*(sorted(value) if isinstance(value, frozenset) else value)]
        elif isinstance(value, Path):
            value = str(value)
        (section if key.level == "section" else top)[name] = value
    assert config.task in SECTIONS
    return {**top, config.task: section}


TORCH_LAUNCH = "torchrun (or set RANK)"


def check_rank(config: Config, world_size: int | None, launcher: str = TORCH_LAUNCH) -> str | None:
    """What to tell the user when `rank` names ranks that this run does not have, else None.

    world_size: number of processes in the default group; None when there is no group. A run without a group
    counts as rank 0 (see `select.RankFilter`). launcher: what starts several processes.
    """
    if not config.rank:
        return None
    ranks = f"rank {compact(config.rank)}".replace("'", '"')
    if world_size is None:
        if 0 in config.rank:
            return (
                f"{ranks}: this run has no process group. It counts as rank 0 and is dumped; "
                "`rank` can be left out."
            )
        return (
            f"{ranks}: this run has no process group and counts as rank 0, so nothing will be dumped. "
            f"Leave `rank` out, or start with {launcher} if there are to be several processes."
        )
    beyond = [r for r in config.rank if r >= world_size]
    if not beyond:
        return None
    last = f"this run has {world_size} process{'es' * (world_size > 1)}, so ranks end at {world_size - 1}"
    listed = f"rank {compact(beyond)}".replace("'", '"')
    if len(beyond) == len(config.rank):
        return f"{listed}: {last} and nothing will be dumped. Write ranks from 0 to {world_size - 1}."
    return f"{listed}: {last}; only the others of {ranks} will be dumped."
