"""Count what a dump wrote, with nothing but os.walk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["Written", "written"]


class Written(NamedTuple):
    """names, files: of tensors, with and without second names; bytes_unshared: each name counted."""

    names: int
    files: int
    documents: int
    bytes: int
    bytes_unshared: int
    document_bytes: int


def written(folder: Path) -> Written:
    names = documents = every = once = text = 0
    seen: set[int] = set()
    for above, _, files in os.walk(folder):
        for file in files:
            about = os.stat(os.path.join(above, file))
            every += about.st_size
            if file.endswith((".pt", ".npy")):
                names += 1
            else:
                documents += 1
                text += about.st_size
            if about.st_ino not in seen:
                seen.add(about.st_ino)
                once += about.st_size
    return Written(names, len(seen) - documents, documents, once, every, text)
