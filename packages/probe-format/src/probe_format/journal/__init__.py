"""Write and read a journal of events, and assemble the documents that the events add up to."""

from __future__ import annotations

from . import events
from .assembly import Documents
from .frames import MAGIC, JournalContents, JournalWriter, read_journal

__all__ = ["MAGIC", "Documents", "JournalContents", "JournalWriter", "events", "read_journal"]
