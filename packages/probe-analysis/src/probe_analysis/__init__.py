"""Find the first wrong number in dumps by Probe and by msprobe."""

__version__ = "0.1.0"

from probe_analysis.align.mapping import Mapping, load_mapping
from probe_analysis.calls.engine import in_processes, on_dask
from probe_analysis.diff.diff import Diff, diff
from probe_analysis.export.export import Exported, export
from probe_analysis.nonfinite.first import NonFinite, first_non_finite
from probe_analysis.ranks.ranks import Ranks, ranks
from probe_analysis.replay.check import Check, check
from probe_analysis.report.report import Report, report
from probe_analysis.trend.trend import Trend, trend

__all__ = [
    "Check", "Diff", "Exported", "Mapping", "NonFinite", "Ranks", "Report", "Trend", "__version__",
    "check", "diff", "export", "first_non_finite", "in_processes", "load_mapping", "on_dask", "ranks", "report",
    "trend",
]  # fmt: skip
