"""What is said about each tensor: the options, and a tensor's place in the summary of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import define
from probe_format.values import ValuePath
from probe_format.write import Summary

from probe_runtime.config.config import Config

from .leaf import Placement

__all__ = ["TensorOptions", "options_of", "summarise"]


@define
class TensorOptions:
    """What to say about each tensor.

    directory: where files go.
    statistics: whether there are numbers.
    checksum: None, ``md5`` or ``xor``.
    zero_count: whether zeros are counted.
    share: whether equal bytes are described, or at least written, only once.
    deferred: whether files are written behind the run, with at most ``bound`` bytes waiting.
    overlap: whether a large file is written while its numbers are computed.
    """

    directory: Path
    statistics: bool = True
    checksum: str | None = None
    zero_count: bool = False
    share: bool = True
    deferred: bool = False
    bound: int = 1 << 30
    overlap: bool = False


def options_of(config: Config, directory: Path) -> TensorOptions:
    """Return what a configuration says about tensors. directory: where their files go."""
    return TensorOptions(
        directory,
        statistics=config.summary_mode != "xor",
        checksum=None if config.summary_mode == "statistics" else config.summary_mode,
        zero_count=config.zero_count,
        share=config.share,
        deferred=config.async_dump,
        bound=config.async_bytes,
    )


def summarise(summary: Summary, placement: Placement, path: ValuePath, tensor: dict[str, Any]) -> None:
    """Show one tensor object to the summary, under the name that a reader of the record looks for."""
    norm = tensor.get("Norm")
    # Token ids are large and say nothing about health.
    if norm is None or type(norm) is str or (norm > summary.least and "float" in tensor["dtype"].lower()):
        shown = (placement.label, *path) if placement.label else (*path, 0)  # parameters_grad holds a list by name
        summary.add(placement.record, ".".join(map(str, shown)), tensor)
