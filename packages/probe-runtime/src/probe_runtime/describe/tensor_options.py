"""What the tensor leaf of every framework has in common: options, numpy arrays, the summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
from attrs import define
from probe_format.tensors import array_object, npy_bytes, stored
from probe_format.values import ValuePath
from probe_format.write import Coverage, Summary

from probe_runtime.config.config import Config

from .placement import Slot
from .step_files import StepFiles

__all__ = ["TensorOptions", "array_json", "options_of", "summarise"]


@define
class TensorOptions:
    """What to say about each tensor. directory: where files go. checksum: None, ``md5`` or ``xor``.

    share: the same bytes are described, or at least written, once. deferred: files are written behind the run,
    with at most ``bound`` bytes waiting.
    """

    directory: Path
    statistics: bool = True
    checksum: str | None = None
    zero_count: bool = False
    share: bool = True
    deferred: bool = False
    bound: int = 1 << 30


def options_of(config: Config, directory: Path) -> TensorOptions:
    """What a configuration says about tensors. directory: where their files go."""
    return TensorOptions(
        directory,
        statistics=config.summary_mode != "xor",
        checksum=None if config.summary_mode == "statistics" else config.summary_mode,
        zero_count=config.zero_count,
        share=config.share,
        deferred=config.async_dump,
        bound=config.async_bytes,
    )


def summarise(summary: Summary, slot: Slot, path: ValuePath, tensor: dict[str, Any]) -> None:
    """Show one tensor object to the summary, under the name that a person looks for."""
    norm = tensor.get("Norm")
    # Token ids are large and say nothing about health.
    if norm is None or type(norm) is str or (norm > summary.least and "float" in tensor["dtype"].lower()):
        place = (slot.shown, *path) if slot.shown else (*path, 0)  # parameters_grad holds a list by name
        summary.add(slot.record, ".".join(map(str, place)), tensor)


def array_json(
    a: npt.NDArray[Any], slot: Slot, path: ValuePath, options: TensorOptions, files: StepFiles, coverage: Coverage
) -> dict[str, Any]:
    """The object of a numpy array (spec/statistics.md); writes its file when the slot wants one."""
    body = array_object(
        a, statistics=options.statistics, checksum=options.checksum, zero_count=options.zero_count
    )
    if "unsupported" in body:
        coverage.add("unsupported", f"array: {body['unsupported']}")
    if slot.file and a.size:
        if a.dtype.hasobject:
            body["lost"] = "tensor file: an array of Python objects has no bytes of its own"
        else:
            body.update(files.save(slot, path, "npy", npy_bytes(stored(a))))
    coverage.outcome("arrays", "recorded")
    return body
