"""Open Probe as a user does, and read what it wrote with nothing but json: the tests' own, simple reader."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from probe_mindspore import PrecisionDebugger

Json = Any
_SECTION_KEYS = {"scope", "list", "tensor_list", "data_mode", "summary_mode", "views", "zero_count", "apis"}

# The first tensor of a process fails in NumPy's import with MindSpore's numpy; every later one works.
with contextlib.suppress(SystemError):
    ms.Tensor(np.ones((2, 2), np.float32)).reshape(4, 1)


def write_config(
    folder: Path, *, task: str = "statistics", level: str = "mix", dump: Path | None = None, **keys: Any
) -> Path:
    """A config.json in msprobe's layout: what belongs to the task goes into the section named as the task."""
    folder.mkdir(parents=True, exist_ok=True)
    section = {key: keys.pop(key) for key in list(keys) if key in _SECTION_KEYS}
    config = {"task": task, "level": level, "dump_path": str(dump or folder / "dump"), **keys, task: section}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


@contextmanager
def opened(folder: Path, **keys: Any) -> Iterator[PrecisionDebugger]:
    """A debugger that dumps to `folder`/dump, closed at the end so that the next test can have its own."""
    with PrecisionDebugger(str(write_config(folder, **keys))) as debugger:
        yield debugger


def capture(folder: Path, work: Callable[[], Any], model: Any = None, **keys: Any) -> dict[str, Json]:
    """Run `work` once inside start ... stop, step; the records by name."""
    with opened(folder, **keys) as debugger:
        debugger.start(model)
        try:
            work()
        finally:
            debugger.stop()
        debugger.step()
    return records(folder / "dump")


def strict(path: Path) -> Json:
    """The document; bare NaN and Infinity and repeated keys are errors."""

    def no_constant(token: str) -> Any:
        raise AssertionError(f"{token} is not JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        assert len(found) == len(pairs), f"repeated key in {path}"
        return found

    return json.loads(path.read_text("utf-8"), parse_constant=no_constant, object_pairs_hook=unique)


def rank_dir(dump: Path, step: int = 0, rank: int | None = None) -> Path:
    return dump / f"step{step}" / ("rank" if rank is None else f"rank{rank}")


def records(dump: Path, step: int = 0, rank: int | None = None) -> dict[str, Json]:
    return strict(rank_dir(dump, step, rank) / "dump.json")["data"]


def report(dump: Path, step: int = 0, rank: int | None = None) -> dict[str, Json]:
    return strict(rank_dir(dump, step, rank) / "report.json")


def construct(dump: Path, step: int = 0, rank: int | None = None) -> dict[str, Json]:
    return strict(rank_dir(dump, step, rank) / "construct.json")


def leaves(value: Json) -> Iterator[dict[str, Json]]:
    """Every tensor object below `value`, in order."""
    if isinstance(value, dict):
        if "dtype" in value and "shape" in value:
            yield value
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)


def agrees(leaf: Json, truth: Any, tolerance: float = 1e-5) -> bool:
    """Whether a record has the shape and the four statistics of an array or tensor."""
    a = np.asarray(truth.asnumpy() if hasattr(truth, "asnumpy") else truth, np.float64)
    expected = {"Max": a.max(), "Min": a.min(), "Mean": a.mean(), "Norm": np.linalg.norm(a.ravel())}
    scale = max(float(np.abs(a).max()), 1e-30)
    return (
        leaf is not None
        and leaf["shape"] == list(a.shape)
        and all(
            abs(float(leaf[key]) - value) <= tolerance * max(scale, abs(value))
            for key, value in expected.items()
        )
    )


def load(dump: Path, leaf: Json, step: int = 0, rank: int | None = None) -> Any:
    """The tensor file that `leaf` names."""
    return np.load(rank_dir(dump, step, rank) / "dump_tensor_data" / leaf["data_name"])
