"""Describe a kernel dump: which kernels, iterations and values, each a key with its check."""

import os
from collections.abc import Sequence
from typing import Any, Literal, get_args

import attrs
from probe_format.errors import Problem
from probe_runtime.config import ConfigEntry, Findings, choice, declared_keys, flag, key

from . import option_checks
from .iteration_ranges import parse_iterations

Saved = Literal["tensor", "statistic", "full"]
FileFormat = Literal["npy", "bin"]
Processor = Literal["host", "device"]
Precision = Literal["high", "low"]
DebugMode = Literal[0, 1, 2, 3, 4]


def as_tuple(value: Any) -> Any:
    """Return a list as a tuple, one string as a tuple of one, and anything else as it is, for the checks to refuse."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list | tuple | range | set | frozenset) else value


def _iterations(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | set | frozenset) else value


def _devices(value: Any) -> Any:
    return (value,) if type(value) is int else as_tuple(value)


def plain_path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


@attrs.frozen(kw_only=True)
class KernelDump:
    """Describe what to dump of the kernels. `probe_kernel.control.control_file` checks it for a chosen backend.

    An option that is None was not given: the backend's default applies, if the backend has the option at all.
    A given option that the backend would ignore is refused.
    """

    path: str | os.PathLike[str] | None = attrs.field(default=None, converter=plain_path)
    """Absolute folder of letters, digits, ``-``, ``_`` and ``/``. None: ``$MS_DIAGNOSTIC_DATA_PATH/debug_dump``."""
    net_name: str = key("Net", "its folder: letters, digits, `-` and `_`", option_checks.net_name)
    iterations: str | int | range | Sequence[str | int | range] = key(
        "all", '`"0|5-8|100-120"`, `"all"`, or numbers and ranges; counted from 0', parse_iterations,
        converter=_iterations,
    )  # fmt: skip
    kernels: str | Sequence[str] = key(
        (), 'full names, types (`"conv"`) and `"name-regex(...)"`; empty selects every kernel', option_checks.kernels,
        converter=as_tuple,
    )  # fmt: skip
    inputs: bool = key(True, "whether to dump inputs", flag)
    outputs: bool = key(True, "whether to dump outputs", flag)
    devices: Sequence[int] | None = key(
        None, "device numbers; None means 0 to 7, MindSpore's own default", option_checks.devices, converter=_devices
    )  # fmt: skip
    saved_data: Saved | None = key(None, "tensors, their statistics, or both", choice(*get_args(Saved)))
    statistic_category: str | Sequence[str] | None = key(
        None, "which statistics; None means max, min and l2norm", option_checks.statistics, converter=as_tuple
    )
    op_debug_mode: DebugMode = key(
        0, "0: kernels as chosen; 3: only kernels that overflowed; 4: only the inputs of a kernel that failed, "
        "whatever `outputs` says", option_checks.number(*get_args(DebugMode)),
    )  # fmt: skip
    overflow_number: int | None = key(
        None,
        "with op_debug_mode 3: how many overflows, in order of time; 0 means all",
        option_checks.whole(0),
    )
    file_format: FileFormat | None = key(None, "of the files", choice(*get_args(FileFormat)))
    trans_flag: bool | None = key(None, "True: in the host's NCHW layout; False: in the device's own", flag)
    stat_calc_mode: Processor | None = key(None, "what computes statistics", choice(*get_args(Processor)))
    device_stat_precision_mode: Precision | None = key(None, "the device's", choice(*get_args(Precision)))
    sample_mode: Literal[0, 1] | None = key(None, "1: samples of tensors", option_checks.number(0, 1))
    sample_num: int | None = key(None, "elements in a sample", option_checks.whole(1))
    save_kernel_args: bool | None = key(None, "whether to save the arguments of kernels", flag)
    set_dump: bool = key(False, "dump what `mindspore.set_dump(target)` has marked", flag)
    synchronous: bool | None = key(None, "`enable` of the file: False dumps asynchronously, on Ascend", flag)


def checked(description: Any) -> tuple[dict[str, Any], list[Problem]]:
    """Return the options of a description that were given, as their checks keep them, and every problem."""
    findings = Findings(declared_keys(type(description)))
    fields = [field for field in attrs.fields(type(description)) if field.name in findings.keys]
    given = {f.name: getattr(description, f.name) for f in fields}
    given = {f.name: given[f.name] for f in fields if given[f.name] is not None or f.default is not None}
    values = {name: findings.check(ConfigEntry(name, value, name)) for name, value in given.items()}
    return values, findings.problems
