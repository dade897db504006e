"""Give a planned step the usual numbers of a dtype, so that its records are as long as in a dump."""

from typing import Any

from attrs import evolve
from probe_format.statistics import SKETCH_SUMS
from probe_format.tensors import NO_STATS, Stats, stats_json

from probe_runtime.describe import TensorOptions

# As long as the numbers of the demo's tensors are on average: 19, 20, 20 and 18 characters.
_WIDE = Stats(0.07010708749294281, -0.0832291245460510, -0.00005455832043479, 12.808551213479725)
# A narrow float has few digits; its mean and norm are computed wider.
_NARROW = Stats(0.07177734375, -0.08349609375, -0.00005455832043479, 12.808551213479725)
_INTEGER = Stats(226, 10, 81.9677734375, 2864.6457023513394)
_BOOL = Stats(True, False, 0.4921875, 22.449944320643649)


def typical_numbers(options: TensorOptions, dtype: str, count: int) -> dict[str, Any]:
    """Return the keys of a tensor object that hold numbers.

    dtype: its name, ``torch.float32`` or ``Float32``.
    count: how many elements it has.
    """
    found: dict[str, Any] = {}
    if options.statistics:
        stats = _stats(dtype.lower()) if count else NO_STATS
        found.update(stats_json(evolve(stats, zeros=count // 2 if options.zero_count else None)))
    if options.checksum is not None:
        found["md5"] = "0x" + "8" * 16 if options.checksum == "xor" else "8" * 8
    if options.sketch and count and "float" in dtype.lower():
        found["sketch"] = [-0.12345678] * SKETCH_SUMS
    return found


def _stats(dtype: str) -> Stats:
    if "bool" in dtype:
        return _BOOL
    if "int" in dtype:
        return _INTEGER
    return _NARROW if "16" in dtype or "float8" in dtype else _WIDE
