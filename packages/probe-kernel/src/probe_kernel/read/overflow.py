"""Read overflow files (``Opdebug.Node_OpDebug...``, JSON or binary): which task overflowed, and where."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from probe_format.errors import FormatError
from probe_format.plain_files import read_file
from probe_format.schema import parse_object

from probe_kernel.files.bin_file import open_bin
from probe_kernel.files.opdebug import is_opdebug, opdebug_json

from .file_name import FileName

#: Limit in bytes: a record has about two thousand, so a far longer file is a tensor and need not be read.
_MOST = 1 << 16


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
