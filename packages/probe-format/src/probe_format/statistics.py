"""List the statistics of a tensor object (spec/statistics.md): whatever reads or checks one asks this table."""

from typing import Literal

from attrs import frozen


@frozen
class Statistic:
    """Describe one number of a tensor object.

    kind: a ``number`` (a float, a whole number or a flag; as text where it is not finite), or a ``count``.
    group: ``whole``, which every tensor has, unless it has a checksum or a word why not; ``broken``, which are there
        together where something is not finite; or ``asked``, which is there where it was asked for.
    counts: the value that it counts, where that is not finite, as ``NaN``.
    near: how far a record's number may be from that of its file, relatively; 0 where they are not compared.
    """

    key: str
    kind: Literal["number", "count"]
    group: Literal["whole", "broken", "asked"]
    counts: str = ""
    near: float = 0.0


TABLE = (
    Statistic("Max", "number", "whole", near=1e-6),
    Statistic("Min", "number", "whole", near=1e-6),
    Statistic("Mean", "number", "whole", near=1e-2),
    Statistic("Norm", "number", "whole", near=1e-3),
    Statistic("nan_count", "count", "broken", "NaN"),
    Statistic("posinf_count", "count", "broken", "+Inf"),
    Statistic("neginf_count", "count", "broken", "-Inf"),
    Statistic("zero_count", "count", "asked"),
    Statistic("finite_max", "number", "broken"),
    Statistic("finite_min", "number", "broken"),
)
"""In the order of the exported columns."""

KEYS = tuple(each.key for each in TABLE)
WHOLE = tuple(each.key for each in TABLE if each.group == "whole")
BROKEN = tuple(each.key for each in TABLE if each.group == "broken")
NUMBERS = tuple(each.key for each in TABLE if each.kind == "number")
COUNTS = tuple(each.key for each in TABLE if each.kind == "count")
NOT_FINITE = {each.key: each.counts for each in TABLE if each.counts}
"""Key -> what it counts."""
SKETCH_SUMS = 16
"""How many numbers are under the key ``sketch``, which is no single one."""
