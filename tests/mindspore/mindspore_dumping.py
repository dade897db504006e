"""Open Probe as a user of MindSpore does, and look at what it wrote."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from documents import (
    Json,
    construct,
    leaves,
    number,
    rank_dir,
    records,
    report,
    strict,
    validate,
    write_config,
)
from probe_mindspore import PrecisionDebugger

__all__ = [
    "Json", "agrees", "capture", "construct", "leaves", "load", "number", "opened", "rank_dir", "records",
    "report", "strict", "validate", "write_config",
]  # fmt: skip


@contextmanager
def opened(folder: Path, **keys: Any) -> Iterator[PrecisionDebugger]:
    """A debugger that dumps to `folder`/dump, closed at the end so that the next test can have its own."""
    debugger = PrecisionDebugger(str(write_config(folder, **keys)))
    with debugger:
        yield debugger


def capture(folder: Path, work: Callable[[], Any], model: Any = None, **keys: Any) -> dict[str, Json]:
    """Run `work` once inside start ... stop, step; the records by name."""
    with opened(folder, **keys) as debugger:
        debugger.start(model) if model is not None else debugger.start()
        try:
            work()
        finally:
            debugger.stop()
        debugger.step()
    return records(folder / "dump")


def agrees(leaf: Json, values: np.ndarray, tolerance: float = 1e-6) -> bool:
    """Whether a record has the shape and the four statistics of `values`, to a relative tolerance."""
    if leaf is None:
        return False
    wide = values.astype(np.float64)
    expected = {"Max": wide.max(), "Min": wide.min(), "Mean": wide.mean(), "Norm": np.linalg.norm(wide)}
    scale = max(float(np.abs(wide).max()), 1e-30)
    return leaf["shape"] == list(values.shape) and all(
        math.isclose(number(leaf[key]), float(value), rel_tol=tolerance, abs_tol=tolerance * scale)
        for key, value in expected.items()
    )


def load(dump: Path, leaf: Json, step: int = 0, rank: int | None = None) -> np.ndarray:
    """The tensor file that `leaf` names."""
    return np.asarray(np.load(rank_dir(dump, step, rank) / "dump_tensor_data" / leaf["data_name"]))
