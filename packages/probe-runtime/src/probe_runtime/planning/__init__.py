"""Say what a dump would write before it is made: the counts, the sizes, and what stands in its way."""

from .counted_files import CountedFiles
from .dump_plan import DumpPlan
from .loss import loss_in
from .outcome import outcome, wanted
from .typical_numbers import typical_numbers

__all__ = ["CountedFiles", "DumpPlan", "loss_in", "outcome", "typical_numbers", "wanted"]
