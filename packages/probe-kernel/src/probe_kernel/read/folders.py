"""Walking a tree of dumps: links to folders are followed, and nothing that cannot be opened is passed over."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

__all__ = ["walk"]


def walk(top: Path, leave_out: Collection[str] = ()) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Each folder at or below ``top`` in order, with the names of the folders and files in it.

    leave_out: names of folders that are not entered. A folder that several links lead to comes once, so a link to
    a folder around it is no endless loop. Raises OSError for a folder that cannot be opened: what is in it must not
    be missing without a word.
    """
    seen: set[tuple[int, int]] = set()
    for folder, below, files in os.walk(top, onerror=_refuse, followlinks=True):
        here = os.stat(folder)
        if (here.st_dev, here.st_ino) in seen:
            below.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        below[:] = sorted(name for name in below if name not in leave_out)
        yield Path(folder), below, sorted(files)


def _refuse(error: OSError) -> None:
    raise error
