"""What a part of Probe says that it left out."""

from typing import Any

from probe_format.write.coverage import Coverage


def left_out(part: Any) -> dict[str, int]:
    """Reason -> times, as ``part.count_left_out`` counts them."""
    coverage = Coverage()
    part.count_left_out(coverage)
    return coverage.counts["left_out"]
