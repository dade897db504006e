"""Derive from a configuration what one step collects, and the header of its dump."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import define, field
from probe_format.layout import TENSORS
from probe_format.write import FORMAT_VERSION

from probe_runtime.config.config import Config
from probe_runtime.select.fields import Fields, fields_of


@define
class Plan:
    """What one step collects.

    keep: the parts of records that are kept.
    structure: whether only call tree and stacks are recorded.
    files: whether every tensor is written to a file.
    tensor_list: whether the tensors of records with some names are written to files.
    construct: whether the call tree is recorded (construct.json).
    stacks: whether stacks are recorded (stack.json).
    on_non_finite: what happens where values begin that are not finite.
    parameters_grad: whether gradients of parameters are recorded.
    """

    keep: Fields
    structure: bool
    files: bool
    tensor_list: bool
    construct: bool
    stacks: bool
    on_non_finite: str = "record"
    parameters_grad: bool = field(init=False)

    @parameters_grad.default
    def _parameters_grad(self) -> bool:
        return self.keep.parameters_grad and not self.structure


def plan_of(config: Config) -> Plan:
    """Return the plan that a configuration asks for."""
    return Plan(
        keep=fields_of(config),
        structure=not config.kind.values,
        files=config.kind.files,
        tensor_list=bool(config.tensor_list),
        construct=config.level != "L1" and config.extra_info,
        stacks=config.extra_info,
        on_non_finite=config.on_non_finite,
    )


def header_of(config: Config, directory: Path, about: Mapping[str, Any], *, framework: str) -> dict[str, Any]:
    """Return the top-level keys of dump.json without ``data`` (spec/dump.md).

    config: the configuration of the run.
    directory: the rank folder of the dump.
    about: the keys after ``format_version`` (tool, rank, step).
    framework: the value of the key ``framework``.
    """
    header: dict[str, Any] = {
        "task": config.task,
        "level": config.level,
        "framework": framework,
        "dump_data_dir": str(directory / TENSORS) if config.wants_files else None,
        "format_version": FORMAT_VERSION,
        **about,
    }
    if config.summary_mode != "statistics":
        header["checksum"] = "crc32" if config.summary_mode == "md5" else "xor64"
    if not config.extra_info:
        header["extra_info"] = False
    return header
