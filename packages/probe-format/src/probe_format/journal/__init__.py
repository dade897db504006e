"""Write and read a journal of events, and assemble the documents that the events add up to."""

from __future__ import annotations

from . import events
from .assembly import Documents
from .frames import MAGIC, JournalContents, JournalWriter, read_journal
from .holes import hole

__all__ = ["MAGIC", "Documents", "JournalContents", "JournalWriter", "events", "hole", "read_journal"]
