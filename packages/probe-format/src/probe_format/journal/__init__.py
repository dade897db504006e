"""Write and read a journal of events, and fold the events into documents."""

from . import events
from .events import Slot
from .fold import Fold
from .frames import MAGIC, Count, JournalWriter
from .pages import HOLE, Pages, hole, lost
from .reading import JournalContents, folded, read_journal

__all__ = [
    "HOLE", "MAGIC", "Count", "Fold", "JournalContents", "JournalWriter", "Pages", "Slot", "events", "folded", "hole",
    "lost", "read_journal",
]  # fmt: skip
