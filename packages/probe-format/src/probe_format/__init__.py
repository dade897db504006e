"""Read and write Probe's dump format: names, statistics, journal, documents, and the command ``probe``."""

from typing import TYPE_CHECKING

from .on_demand import on_demand

__version__ = "0.1.0"

# The reader is loaded when it is first asked for: a run that only writes dumps does without it.
if TYPE_CHECKING:
    from .errors import DamagedError, FormatError, ProbeError
    from .read import Dump, Rank, Record, Records, Step, Tensor, open
else:
    _errors = dict.fromkeys(("DamagedError", "FormatError", "ProbeError"), "probe_format.errors")
    _read = dict.fromkeys(
        ("Dump", "Rank", "Record", "Records", "Step", "Tensor", "open"), "probe_format.read"
    )
    __getattr__, __dir__ = on_demand(__name__, _errors | _read)

__all__ = [
    "DamagedError", "Dump", "FormatError", "ProbeError", "Rank", "Record", "Records", "Step", "Tensor",
    "__version__", "open",
]  # fmt: skip
