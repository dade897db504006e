"""Trees of kernel dumps as the documents lay them out, where no such machine is at hand (Ascend)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CONV = "Default_network-WithLossCell__backbone-AlexNet_conv3-Conv2d_Conv2D-op12"
TIME = 1623124369613540


def tensor(folder: Path, name: str, array: Any = None) -> Path:
    """A .npy file (or raw bytes) in a folder that is made for it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    array = np.arange(6, dtype=np.float32).reshape(2, 3) if array is None else np.asarray(array)
    if name.endswith(".npy"):
        np.save(path, array)
    else:
        path.write_bytes(array.tobytes())
    return path


def conv(
    folder: Path, *, form: str = ".DefaultFormat.float16.npy", start: int = TIME, op: str = CONV
) -> None:
    """Two inputs and an output of a Conv2D."""
    for at, io in enumerate(("input.0", "input.1", "output.0")):
        tensor(folder, f"Conv2D.{op}.2.7.{start + at}.{io}{form}", np.full((2, 3), at, np.float16))


def close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody open a folder, not even root."""
    scandir = os.scandir

    def refuse(path: Any = ".") -> Any:
        if str(path) == str(folder):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)


#: The columns that each statistic.csv of MindSpore begins with.
COLUMNS = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"


def table(folder: Path, *lines: str, more: str = "Max Value") -> None:
    """A statistic.csv with ``more`` columns."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "statistic.csv").write_text("".join(f"{line}\n" for line in (f"{COLUMNS},{more}", *lines)))


TREES: dict[str, tuple[str, str, dict[str, Any]]] = {
    # layout -> (folder below the path, form of the file names, what must be known of it)
    "mindspore": ("rank_1/ResNet50/3/5", ".DefaultFormat.float16.npy",
                  {"rank": 1, "net": "ResNet50", "graph": 3, "iteration": 5, "number": 5}),
    "constants": ("rank_1/ResNet50/3/constants", ".DefaultFormat.float16.npy",
                  {"rank": 1, "graph": 3, "iteration": None}),
    "o2": ("4/20240102030405/6/ge_default_20240102_41/1/0", ".NCHW.float16.npy",
           {"step": 4, "time": "20240102030405", "rank": 6, "net": "ge_default_20240102_41", "graph": 1,
            "iteration": 0, "number": 4}),
    "ge": ("20240102030405/6/model_x/1/2", ".NCHW.float16.npy", {"rank": 6, "net": "model_x", "iteration": 2}),
    "msprobe": ("rank_2/20240102030405/step_7", ".NC1HWC0.float16.npy", {"rank": 2, "step": 7, "number": 7}),
    "torch": ("step7/20240102030405/3", ".ND.float16.npy", {"rank": 3, "step": 7, "graph": None}),
    "async": ("5/ResNet50_graph_1/1/8", ".DefaultFormat.float16.npy", {"rank": 5, "graph": 1, "iteration": 8}),
    "acl": ("20240102030405/0", ".ND.float16.npy", {"rank": 0, "time": "20240102030405"}),
    "folder": ("some/where", ".DefaultFormat.npy", {"rank": None, "number": None}),
}  # fmt: skip
