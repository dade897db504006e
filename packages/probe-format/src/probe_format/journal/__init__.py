"""Write and read a journal of events, and fold the events into documents."""

from __future__ import annotations

from . import events
from .events import Slot
from .fold import Fold
from .frames import MAGIC, Count, JournalWriter
from .holes import hole, lost
from .pages import Pages
from .reading import JournalContents, folded, read_journal

__all__ = [
    "MAGIC",
    "Count",
    "Fold",
    "JournalContents",
    "JournalWriter",
    "Pages",
    "Slot",
    "events",
    "folded",
    "hole",
    "lost",
    "read_journal",
]
