"""Write and read the few numbers of every step that task `watch` keeps (spec/watch.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_format.on_demand import on_demand

from .writer import ABSENT, KINDS, Column, Kind, WatchWriter, free_place

# A run that is watched writes and never reads.
if TYPE_CHECKING:
    from .watch_file import Row, WatchFile, watch_files
else:
    __getattr__, __dir__ = on_demand(
        __name__, dict.fromkeys(("Row", "WatchFile", "watch_files"), "probe_format.watch.watch_file")
    )

__all__ = [
    "ABSENT", "KINDS", "Column", "Kind", "Row", "WatchFile", "WatchWriter", "free_place", "watch_files",
]  # fmt: skip
