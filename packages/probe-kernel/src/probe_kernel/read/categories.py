"""List the statistics that a dump can have: their names in the configuration, and their columns in statistic.csv."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from probe_format.errors import ConfigError, Problem
from probe_format.suggest import did_you_mean

__all__ = ["CATEGORIES", "NOT_FINITE", "check_categories"]

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
#: Those that count what is not finite.
NOT_FINITE = ("nan count", "positive inf count", "negative inf count")


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
