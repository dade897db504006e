"""Converting one kernel dump: 256 MB of NC1HWC0 fp16 to NCHW, beside a plain copy of the file, in turns."""

from __future__ import annotations

import shutil
import statistics
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

DEVICE, ORIGINAL = (8, 64, 128, 128, 16), (8, 1024, 128, 128)
_FP16, _NC1HWC0 = 2, 3


def measure(rounds: int, disk: str) -> dict[str, Any]:
    """Return the median seconds of a conversion and of a copy."""
    from probe_kernel.convert import Conversion, convert_file

    times: dict[str, list[float]] = {"copy": [], "convert": []}
    with tempfile.TemporaryDirectory(prefix="probe-convert-", dir=disk) as name:
        folder = Path(name)
        source, out = folder / "Op.Default_x_Op-op1.1.2.3", folder / "out"
        source.write_bytes(kernel_dump())
        how = Conversion("npy", "NCHW")
        for i in range(-1, rounds):
            for work in times:
                out.mkdir()
                begin = time.perf_counter()
                if work == "copy":
                    shutil.copyfile(source, out / "copy")
                else:
                    outcome = convert_file(source, out, how)
                    assert not outcome.faults and outcome.written, outcome.faults
                if i >= 0:
                    times[work].append(time.perf_counter() - begin)
                shutil.rmtree(out)
    return {"name": "convert", **{work: statistics.median(taken) for work, taken in times.items()}}


def kernel_dump() -> bytes:
    """Return a file as Ascend writes it; the layout is that of spec/kernel-files.md in probe-kernel."""
    raw = np.random.default_rng(0).integers(0, 1 << 15, int(np.prod(DEVICE)), dtype=np.uint16).tobytes()
    tensor = (
        _number(1, _FP16)
        + _number(2, _NC1HWC0)
        + _shape(3, DEVICE)
        + _number(6, len(raw))
        + _shape(7, ORIGINAL)
    )
    header = _block(1, b"2.0") + _number(2, 1) + _block(3, tensor) + _block(6, b"Default/x/Op-op1")
    return struct.pack("<Q", len(header)) + header + raw


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _block(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _shape(field: int, dims: tuple[int, ...]) -> bytes:
    return _block(field, _block(1, b"".join(map(_varint, dims))))
