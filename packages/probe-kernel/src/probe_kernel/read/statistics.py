"""List the statistics that a dump can have, and compute them for dumps that have only tensors."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from probe_format.errors import ConfigError, Problem
from probe_format.suggest import did_you_mean
from probe_format.tensors import blocks, stats_of

from probe_kernel.files.dtypes import is_numeric

Value = float | int | str | None

#: The name of a statistic in the configuration (statistic_category) -> its column.
CATEGORIES: Mapping[str, str] = {
    "max": "Max Value",
    "min": "Min Value",
    "avg": "Avg Value",
    "count": "Count",
    "negative zero count": "Negative Zero Count",
    "positive zero count": "Positive Zero Count",
    "nan count": "NaN Count",
    "negative inf count": "Negative Inf Count",
    "positive inf count": "Positive Inf Count",
    "zero count": "Zero Count",
    "l2norm": "L2Norm Value",
    "md5": "MD5",
    "sha1": "SHA1",
}
#: The statistics that count what is not finite.
NOT_FINITE = ("nan count", "positive inf count", "negative inf count")
#: Every statistic but the hashes, which must be named: they cost as much as all the others together.
NUMBERS = tuple(name for name in CATEGORIES if name not in ("md5", "sha1"))


def check_categories(categories: Iterable[str]) -> tuple[str, ...]:
    """Return the categories as keys of `CATEGORIES`, each once. Raises ConfigError when one is unknown."""
    out, problems = [], []
    aliases = {"mean": "avg", "hash:md5": "md5", "hash:sha1": "sha1", "hash": "sha1"}
    for category in categories:
        name = aliases.get(category.strip().lower(), category.strip().lower())
        if name in CATEGORIES:
            out.append(name)
        else:
            hint = did_you_mean(name, CATEGORIES) or f"Choose from {', '.join(CATEGORIES)}."
            problems.append(Problem("statistic_category", f"{category!r} is not a statistic.", hint))
    if problems:
        raise ConfigError(problems)
    return tuple(dict.fromkeys(out))


def numbers(
    array: npt.NDArray[Any], categories: Sequence[str] = NUMBERS, dtype: str = ""
) -> Mapping[str, Value]:
    """Compute statistics as MindSpore's host does, in float64; return them by their names in statistic_category.

    array: the values.
    categories: which statistics.
    dtype: the tensor's own dtype, as the dump calls it.

    max, min and avg are of the finite elements; l2norm is of all elements. These four are None where no element is
    finite. ``negative zero count`` counts elements below zero and ``positive zero count`` those above, as MindSpore's
    documents define them. md5 and sha1 are of the bytes in C order. Complex values, and dtypes of which only the codes
    can be read (hifloat8), have a count and hashes alone.
    """
    out: dict[str, Value] = {"count": array.size}
    if array.dtype.kind in "biuf" and is_numeric(dtype):
        out.update(_numbers(array))
    for name in {"md5", "sha1"}.intersection(categories):
        raw: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        out[name] = hashlib.new(name, raw, usedforsecurity=False).hexdigest()
    return {name: out.get(name) for name in categories}


def _numbers(array: npt.NDArray[Any]) -> dict[str, Value]:
    stats = stats_of(array)
    finite = array.size - stats.nan - stats.posinf - stats.neginf
    means, below, above = [], 0, 0
    for block in blocks(array):
        some = block if stats.all_finite else block[np.isfinite(block)]
        below += int(np.count_nonzero(some < 0))
        above += int(np.count_nonzero(some > 0))
        if not stats.all_finite and (mean := stats_of(some).mean) is not None:
            means.append(mean * (some.size / finite))
    whole = stats.all_finite
    return {
        "max": _plain(stats.max if whole else stats.finite_max),
        "min": _plain(stats.min if whole else stats.finite_min),
        "avg": stats.mean if whole else math.fsum(means) if means else None,
        "negative zero count": below,
        "positive zero count": above,
        "nan count": stats.nan,
        "negative inf count": stats.neginf,
        "positive inf count": stats.posinf,
        "zero count": finite - below - above,
        "l2norm": stats.norm if finite else None,
    }


def _plain(value: float | int | bool | None) -> Value:
    return int(value) if isinstance(value, bool) else value
