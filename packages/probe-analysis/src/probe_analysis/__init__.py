"""Find the first wrong number in dumps by Probe and by msprobe."""

__version__ = "0.1.0"

from probe_analysis.align.mapping import Mapping, load_mapping
from probe_analysis.compare.tolerance import Tolerance
from probe_analysis.diff.diff import Diff, diff
from probe_analysis.export.export import Exported, export
from probe_analysis.nonfinite.first import NonFinite, first_non_finite
from probe_analysis.ranks.ranks import Ranks, ranks
from probe_analysis.report.report import Report, report
from probe_analysis.trend.trend import Trend, trend

__all__ = [
    "Diff", "Exported", "Mapping", "NonFinite", "Ranks", "Report", "Tolerance", "Trend", "__version__",
    "diff", "export", "first_non_finite", "load_mapping", "ranks", "report", "trend",
]  # fmt: skip
