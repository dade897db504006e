"""Describe the machine and the versions that numbers were taken with, and how much memory this process took."""

from __future__ import annotations

import datetime
import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["about", "own_peak"]

_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "asimd", "sve")


def about(quick: bool) -> dict[str, object]:
    """Return the processor, what it can, its load, and the versions."""
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.M)
    has = set(flags[1].split()) if flags else set()
    return {
        "date": datetime.date.today().isoformat(),
        "processor": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "flags": [flag for flag in _FLAGS if flag in has],
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "numpy", "probe-fast")},
        "quick": quick,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def own_peak() -> int:
    """Return the most bytes that this process had in memory: `getrusage` knows those of the one that started it too."""
    known = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return 1024 * int(known[1]) if known else 0
