"""The overflow record that a device leaves in a ``bin`` file of the kernel ``Node_OpDebug``, as JSON.

2048 bytes of little-endian 64-bit numbers; the places are in spec/kernel-files.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.errors import FormatError

__all__ = ["SIZE", "opdebug_json"]

SIZE = 2048
_NEW = 0x5A5A5A5A
_TASK = ("model_id", "stream_id", "task_id", "task_type")
# unit -> (first number, the further fields, number of the status)
_UNITS = {
    "DHA Atomic Add": (0, ("pc_start", "para_base"), 64),
    "L2 Atomic Add": (16, ("pc_start", "para_base"), 96),
    "AI Core": (32, ("pc_start", "para_base"), 130),
}
_MORE = {"AI Core": (("kernel_code", 128), ("block_idx", 129))}
_HEX = {"pc_start", "para_base", "kernel_code"}


def opdebug_json(raw: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """What each unit says, with the keys of MindSpore's own overflow files.

    Raises FormatError when it is not the record of the documented form.
    """
    if raw.size != SIZE:
        raise FormatError(f"an overflow record has {SIZE} bytes, and this one {raw.size}")
    if int.from_bytes(raw[:4].tobytes(), "little") == _NEW:
        raise FormatError("an overflow record of the new form (it begins with 0x5a5a5a5a) is not read here")
    words = raw.view("<u8")
    out: dict[str, Any] = {}
    for unit, (first, fields, status) in _UNITS.items():
        names = [*((name, first + i) for i, name in enumerate((*_TASK, *fields))), *_MORE.get(unit, ())]
        found = {name: int(words[at]) for name, at in names}
        said = {name: hex(value) if name in _HEX else value for name, value in found.items()}
        out[unit] = {**said, "status": int(words[status])}
    return out
