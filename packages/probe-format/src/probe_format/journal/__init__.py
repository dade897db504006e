"""The journal: events as frames in a file, and the documents that they add up to."""

from __future__ import annotations

from . import events
from .assembly import Documents
from .frames import MAGIC, JournalContents, JournalWriter, read_journal

__all__ = ["MAGIC", "Documents", "JournalContents", "JournalWriter", "events", "read_journal"]
