"""Describe a kernel dump: which kernels, iterations and values, in one frozen object."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

import attrs


def as_tuple(value: Any) -> Any:
    """Return a list as a tuple, one string as a tuple of one, and anything else as it is, for the checks to refuse."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list | tuple | range | set | frozenset) else value


def _iterations(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | set | frozenset) else value


def _devices(value: Any) -> Any:
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else as_tuple(value)


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
    net_name: str = "Net"
    """Folder name of the network: letters, digits, ``-`` and ``_``."""
    iterations: str | int | range | Sequence[str | int | range] = attrs.field(
        default="all", converter=_iterations
    )
    """``"0|5-8|100-120"``, ``"all"``, or numbers and ranges; counted from 0."""
    kernels: str | Sequence[str] = attrs.field(default=(), converter=as_tuple)
    """Full names, types (``"conv"``) and ``"name-regex(...)"``; empty selects every kernel."""
    inputs: bool = True
    outputs: bool = True
    devices: Sequence[int] | None = attrs.field(default=None, converter=_devices)
    """Device numbers; None means 0 to 7, MindSpore's own default."""
    saved_data: Literal["tensor", "statistic", "full"] | None = None
    statistic_category: str | Sequence[str] | None = attrs.field(default=None, converter=as_tuple)
    """Which statistics; None means max, min and l2norm."""
    op_debug_mode: Literal[0, 1, 2, 3, 4] = 0
    """0: kernels as chosen; 3: only kernels that overflowed; 4: only the inputs of a kernel that failed,
    whatever ``outputs`` says."""
    overflow_number: int | None = None
    """With op_debug_mode 3: how many overflows, in order of time; 0 means all."""
    file_format: Literal["npy", "bin"] | None = None
    trans_flag: bool | None = None
    """True: saved in the host's NCHW layout; False: in the device's own."""
    stat_calc_mode: Literal["host", "device"] | None = None
    device_stat_precision_mode: Literal["high", "low"] | None = None
    sample_mode: Literal[0, 1] | None = None
    sample_num: int | None = None
    save_kernel_args: bool | None = None
    set_dump: bool = False
    """Dump what ``mindspore.set_dump(target)`` has marked."""
    synchronous: bool | None = None
    """``e2e_dump_settings.enable``: False dumps asynchronously, on Ascend."""
