"""Say what a dump would write before it is made: the counts, the sizes, and what stands in its way."""

from __future__ import annotations

from .counted_files import CountedFiles
from .dump_plan import DumpPlan
from .obstacles import disk_free, obstacles
from .typical_numbers import typical_numbers

__all__ = ["CountedFiles", "DumpPlan", "disk_free", "obstacles", "typical_numbers"]
