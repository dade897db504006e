"""Read overflow files (``Opdebug.Node_OpDebug...``, JSON or binary): which task overflowed, and where.

A device leaves the binary record in a ``bin`` file of the kernel ``Node_OpDebug``. The old form is 2048 bytes of
little-endian 64-bit numbers. The new form begins with 0x5a5a5a5a and describes one unit. The positions are in
spec/kernel-files.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import frozen
from probe_format.errors import DamagedError, FormatError
from probe_format.plain_files import read_file
from probe_format.schema import parse_object

from probe_kernel.files.bin_file import open_bin

from .file_name import FileName

#: Limit in bytes: a record has about two thousand, so a far longer file is a tensor and need not be read.
_MOST = 1 << 16
Raw = npt.NDArray[np.uint8]
_OLD_SIZE = 2048
_NEW = 0x5A5A5A5A
_TASK = ("model_id", "stream_id", "task_id", "task_type")
#: unit -> the place of its first number, and the places of those that do not follow it.
_UNITS = {
    "DHA Atomic Add": (0, {"status": 64}),
    "L2 Atomic Add": (16, {"status": 96}),
    "AI Core": (32, {"kernel_code": 128, "block_idx": 129, "status": 130}),
}
_HEX = {"pc_start", "para_base", "kernel_code", "src_addr", "dst_addr"}
_CORE = (*_TASK, "context_id", "thread_id", "pc_start", "para_base", "core_id", "block_id", "status")
#: The units of the new form by their numbers, with the 64-bit numbers that each has.
_NEW_UNITS = (
    ("AIC", _CORE),
    ("AIV", _CORE),
    ("AICPU", (*_TASK, "context_id", "cpu_id", "thread_id", "status")),
    ("SDMA", (*_TASK, "context_id", "thread_id", "src_addr", "dst_addr", "channel_id", "status")),
)
_NEW_HEAD = 24  # magic, version, valid, unit, reserved, length of what follows: 32 bits each
_STATUSES = 4  # how many statuses AIC and AIV have from version 1 on


def is_opdebug(raw: Raw) -> bool:
    """Return whether these bytes are an overflow record, rather than a tensor."""
    return raw.size == _OLD_SIZE or _is_new(raw)


def opdebug_json(raw: Raw) -> dict[str, Any]:
    """Return what each unit reports, with the keys of msaccucmp's (and MindSpore's) own overflow files.

    raw: uint8, one dimension.
    Raises FormatError when the bytes are not a record, DamagedError when it is cut short.
    """
    if _is_new(raw):
        return _new_json(raw)
    if raw.size != _OLD_SIZE:
        raise FormatError(f"an overflow record has {_OLD_SIZE} bytes, and this one {raw.size}")
    words = raw.view("<u8")
    out: dict[str, Any] = {}
    for unit, (first, more) in _UNITS.items():
        places = {name: at for at, name in enumerate((*_TASK, "pc_start", "para_base"), first)} | more
        out[unit] = _with_addresses_in_hex({name: int(words[at]) for name, at in places.items()})
    return out


def _is_new(raw: Raw) -> bool:
    return raw.size >= 4 and int.from_bytes(raw[:4].tobytes(), "little") == _NEW


def _new_json(raw: Raw) -> dict[str, Any]:
    if raw.size < _NEW_HEAD:
        raise DamagedError(f"an overflow record of {raw.size} bytes is cut short: its head has {_NEW_HEAD}")
    magic, version, valid, unit, reserved, length = (int(n) for n in raw[:_NEW_HEAD].view("<u4"))
    if unit >= len(_NEW_UNITS):
        raise FormatError(f"an overflow record names the unit {unit}, which is unknown")
    name, fields = _NEW_UNITS[unit]
    several = fields is _CORE and version == 1
    count = len(fields) + (_STATUSES - 1 if several else 0)
    body = raw[_NEW_HEAD : _NEW_HEAD + 8 * count]
    if body.size < 8 * count:
        raise DamagedError(f"an overflow record of {name} is cut short: {body.size} of {8 * count} bytes")
    words = [int(n) for n in np.frombuffer(body.tobytes(), "<u8")]
    data: dict[str, Any] = _with_addresses_in_hex(dict(zip(fields, words, strict=False)))
    if several:
        data["status"] = words[-_STATUSES:]
    unit_says = {"valid": valid, "acc_type": name, "rsv": reserved, "data_len": length, "data": data}
    return {"magic": hex(magic), "version": version, "acc_list": unit_says}


def _with_addresses_in_hex(numbers: dict[str, int]) -> dict[str, Any]:
    return {name: hex(value) if name in _HEX else value for name, value in numbers.items()}


@frozen
class Overflow:
    """Hold one overflow file.

    timestamp: in microseconds.
    units: what each unit (``AI Core``, ``DHA Atomic Add``, ``L2 Atomic Add``) reports, as in the file. Newer records
    have ``acc_list`` instead, with the one unit that they are about.
    """

    path: Path
    timestamp: int
    units: Mapping[str, Any]

    @property
    def tasks(self) -> tuple[tuple[int, int], ...]:
        """Return (task, stream) of each unit whose status is not 0; the kernels with these numbers overflowed."""
        found = []
        for unit in self.units.values():
            inner = unit.get("data") if isinstance(unit, Mapping) else None
            report = inner if isinstance(inner, Mapping) else unit
            status = report.get("status") if isinstance(report, Mapping) else None
            if any(status) if isinstance(status, list) else status:
                task, stream = report.get("task_id"), report.get("stream_id")
                if isinstance(task, int) and isinstance(stream, int):
                    found.append((task, stream))
        return tuple(dict.fromkeys(found))


def is_overflow(name: FileName) -> bool:
    return name.kind == "overflow" or (name.kind == "bin" and name.op_type == "Opdebug")


def read_overflow(path: Path, name: FileName) -> Overflow:
    """Read one file. Raises FormatError when it is not an overflow file, OSError when it cannot be opened."""
    if name.kind == "bin":
        for section in open_bin(path).sections:
            if section.io == "output" and section.size <= _MOST and is_opdebug(raw := section.raw()):
                try:
                    return Overflow(path, name.timestamp or 0, opdebug_json(raw))
                except FormatError as error:
                    raise type(error)(f"{path}: {error}.") from None
        raise FormatError(f"{path} is called an overflow file, and has no record of one.")
    return Overflow(path, name.timestamp or 0, parse_object(read_file(path), str(path)))
