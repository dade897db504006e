"""Read dumps without ever writing: steps, ranks, records and tensors, and whether they are whole."""

from probe_format.schema.finite import Suspect, suspect_of

from .dump import Dump, Rank, Step, journal_fold, open
from .nonfinite import Origin, begins, none_begins, origins, suspects
from .record import Loss, Lost, Record, Records
from .tensor import Tensor
from .verify import STATES, Progress, State, Verdict, verify, verify_rank

__all__ = [
    "STATES", "Dump", "Loss", "Lost", "Origin", "Progress", "Rank", "Record", "Records", "State", "Step",
    "Suspect", "Tensor", "Verdict", "begins", "journal_fold", "none_begins", "open", "origins",
    "suspect_of", "suspects", "verify", "verify_rank",
]  # fmt: skip
