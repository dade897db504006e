"""Read and write Probe's dump format: names, statistics, journal, documents, and the command ``probe``."""

__version__ = "0.1.0"

from probe_format.read.dump import Dump, Rank, Step, open
from probe_format.read.record import Record, Records
from probe_format.read.tensor import Tensor

from .errors import DamagedError, FormatError, ProbeError

__all__ = [
    "DamagedError",
    "Dump",
    "FormatError",
    "ProbeError",
    "Rank",
    "Record",
    "Records",
    "Step",
    "Tensor",
    "__version__",
    "open",
]
