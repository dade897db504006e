"""Open Probe as a user does, and read what it wrote with nothing but json: the tests' own, simple reader."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from probe_torch import PrecisionDebugger
from torch import Tensor

Json = Any
_SECTION_KEYS = {"scope", "list", "tensor_list", "data_mode", "summary_mode", "views", "zero_count", "apis"}


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
    debugger = PrecisionDebugger(str(write_config(folder, **keys)))
    with debugger:
        yield debugger


def capture(
    folder: Path, work: Callable[[], Any], model: Any = None, *, keep_open: bool = False, **keys: Any
) -> dict[str, Json]:
    """Run `work` once inside start ... stop, step; the records by name."""
    with opened(folder, **keys) as debugger:
        debugger.start(model) if model is not None else debugger.start()
        try:
            work()
        finally:
            debugger.stop()
        if not keep_open:
            debugger.step()
    return records(folder / "dump")


def _no_constant(token: str) -> Any:
    raise AssertionError(f"{token} is not JSON")


def strict(path: Path) -> Json:
    """The document; bare NaN and Infinity and repeated keys are errors."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        assert len(found) == len(pairs), f"repeated key in {path}"
        return found

    return json.loads(path.read_text("utf-8"), parse_constant=_no_constant, object_pairs_hook=unique)


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
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)


def number(value: Json) -> float:
    """A statistic as a float, whether a number or one of the three strings."""
    return float({"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(value, value))


def agrees(leaf: Json, tensor: Tensor, tolerance: float = 1e-6) -> bool:
    """Whether a record has the shape and the four statistics of `tensor`, to a relative tolerance."""
    if leaf is None:
        return False
    truth = tensor.detach().double()
    expected = {
        "Max": truth.max().item(),
        "Min": truth.min().item(),
        "Mean": truth.mean().item(),
        "Norm": truth.norm().item(),
    }
    scale = max(truth.abs().max().item(), 1e-30)
    return leaf["shape"] == list(tensor.shape) and all(
        math.isclose(number(leaf[key]), value, rel_tol=tolerance, abs_tol=tolerance * scale)
        for key, value in expected.items()
    )


def load(dump: Path, leaf: Json, step: int = 0, rank: int | None = None) -> Tensor:
    """The tensor file that `leaf` names."""
    file = rank_dir(dump, step, rank) / "dump_tensor_data" / leaf["data_name"]
    if file.suffix == ".npy":
        return torch.from_numpy(np.load(file))
    value: Tensor = torch.load(file, weights_only=True)
    return value
