"""Write dumps: a rank's journal and documents, and whole documents from what a killed run left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_format.journal.frames import Count
from probe_format.on_demand import on_demand

from .claim import Claim, in_use
from .clear import clear, discard
from .coverage import Coverage, Summary, Tally, slot_of
from .disk import NoRoom, check_writable, explain, reason, remains
from .documents import FORMAT_VERSION, Documents, amend_report, write_documents
from .look import Look
from .rank_writer import RankWriter

# Recovery reads dumps, which a run that writes one does not.
if TYPE_CHECKING:
    from .recovery import Recovery, recover, recover_rank
else:
    _homes = dict.fromkeys(("Recovery", "recover", "recover_rank"), "probe_format.write.recovery")
    __getattr__, __dir__ = on_demand(__name__, _homes)

__all__ = [
    "FORMAT_VERSION", "Claim", "Count", "Coverage", "Documents", "Look", "NoRoom", "RankWriter", "Recovery",
    "Summary", "Tally", "amend_report", "check_writable", "clear", "discard", "explain", "in_use",
    "reason", "recover", "recover_rank", "remains", "slot_of", "write_documents",
]  # fmt: skip
