"""Give the type of each key of the configuration as an argument, for editors and mypy.

``python -m probe_runtime.config`` makes this file.
"""

from collections.abc import Collection, Mapping
from os import PathLike
from typing import Any, Literal, TypedDict

StepNumbers = int | str | Collection[int | str]


class Settings(TypedDict, total=False):
    """Hold the keys but task, dump_path, level, step, which debuggers take by position, too."""

    rank: StepNumbers | None
    precision: Literal["low", "high"] | None
    extra_info: bool | None
    async_dump: bool | None
    dump_enable: bool | None
    risk_level: Literal["ALL", "FOCUS", "CORE"] | None
    scope: str | Collection[str] | None
    list: str | Collection[str] | None
    tensor_list: str | Collection[str] | None
    data_mode: str | Collection[str] | None
    summary_mode: Literal["statistics", "md5", "xor"] | Collection[str] | None
    async_bytes: int | None
    views: bool | None
    apis: str | PathLike[str] | None
    zero_count: bool | None
    sketch: bool | None
    overwrite: bool | None
    max_faults: int | None
    share: bool | None
    tensor_files: Literal["one", "packed"] | None
    compiled: Literal["not_seen", "eager"] | None
    graph_taps: Literal["beside", "always"] | None
    optimizer_grad: bool | None
    step_ends: str | None
    first_step: int | str | None
    record_when: Literal["training", "grad"] | None
    keep: Mapping[str, int] | None
    on_non_finite: Literal["record", "raise", "break"] | None
    max_bytes: int | None
    min_free_bytes: int | None
    export: str | None
    when: Any | None
    then: Mapping[str, Any] | None
    moments: bool | None
    updates: bool | None
    models: str | Collection[str] | None
    reload: bool | None
    device: Literal["host", "device"] | None
    file_format: Literal["npy", "bin"] | None


class AllSettings(Settings, total=False):
    """Hold all keys."""

    task: Literal["statistics", "tensor", "structure", "watch"] | None
    dump_path: str | PathLike[str] | None
    level: Literal["L0", "L1", "mix", "debug", "L2"] | None
    step: StepNumbers | None
