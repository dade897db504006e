"""Write dumps: a rank's journal and documents, and whole documents from what a killed run left."""

from __future__ import annotations

from probe_format.journal.frames import Count

from .clear import clear
from .coverage import Coverage, Tally
from .disk import check_writable, explain
from .documents import FORMAT_VERSION, documents_bytes, write_documents
from .rank_writer import RankWriter
from .recover import Recovery, recover, recover_rank
from .summary import Summary

__all__ = [
    "FORMAT_VERSION",
    "Count",
    "Coverage",
    "RankWriter",
    "Recovery",
    "Summary",
    "Tally",
    "check_writable",
    "clear",
    "documents_bytes",
    "explain",
    "recover",
    "recover_rank",
    "write_documents",
]
