"""Choose what is described of each tensor and how its file is written, and give its norm to the summary of a step.

The summary, which report.json holds, has the largest norms of a step and its first tensor that is not finite.
"""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define
from probe_format.values import ValuePath
from probe_format.write import Summary, slot_of

from probe_runtime.config.config import Config

from .placement import Placement

_NO_ORDER = itertools.repeat(0)


@define
class TensorOptions:
    """What to describe of each tensor, and how to write its file.

    directory: where files go.
    statistics: whether statistics are computed.
    checksum: None, ``md5`` or ``xor``.
    zero_count: whether zeros are counted.
    sketch: whether tensors of floats have a sketch.
    share: whether files of equal bytes become second names of one file.
    packed: whether files are appended to packs.
    deferred: whether files are written by a thread while the run goes on.
    bound: how many bytes may wait for that thread.
    overlap: whether a large file is written while its numbers are computed.
    """

    directory: Path
    statistics: bool = True
    checksum: str | None = None
    zero_count: bool = False
    sketch: bool = False
    share: bool = True
    packed: bool = False
    deferred: bool = False
    bound: int = 1 << 30
    overlap: bool = False


def options_of(config: Config, directory: Path) -> TensorOptions:
    """Return the options that a configuration asks for. directory: where files go."""
    return TensorOptions(
        directory,
        statistics=config.summary_mode != "xor",
        checksum=None if config.summary_mode == "statistics" else config.summary_mode,
        zero_count=config.zero_count,
        sketch=config.sketch,
        share=config.share,
        packed=config.tensor_files == "packed",
        deferred=config.async_dump,
        bound=config.async_bytes,
    )


def summarise(
    summary: Summary,
    placement: Placement,
    path: ValuePath,
    tensor: Mapping[str, Any],
    numbers: Iterator[int] = _NO_ORDER,
) -> None:
    """Add one tensor object to the summary, under its slot in the record.

    placement: the part of the record that the tensor is in.
    path: the keys and indexes that lead to the tensor in that part.
    tensor: the keys of the object.
    numbers: gives the tensor's place in the order of all tensors, where the numbers of some come late.
    """
    norm = tensor.get("Norm")
    # Norms of integers are left out: token ids are large without being a sign of trouble.
    if norm is None or type(norm) is str or (norm > summary.least and "float" in tensor["dtype"].lower()):
        summary.add(placement.record, slot_of(placement.label, path), tensor, next(numbers))
