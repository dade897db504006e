"""The dump format of Probe: names, statistics, journal, writer, reader, and the probe command."""

__version__ = "0.1.0"

from .errors import DamagedError, FormatError, ProbeError
from .read import Dump, Rank, Step, open
from .record import Record, Records
from .tensor import Tensor

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
