"""Read dumps without ever writing: steps, ranks, records and tensors, and whether they are whole."""

from __future__ import annotations

from .dump import Dump, Rank, Record, Records, Step, Tensor, assemble_journal, open
from .verify import STATES, Progress, State, Verdict, verify, verify_rank

__all__ = [
    "STATES",
    "Dump",
    "Progress",
    "Rank",
    "Record",
    "Records",
    "State",
    "Step",
    "Tensor",
    "Verdict",
    "assemble_journal",
    "open",
    "verify",
    "verify_rank",
]
