"""Read mapping.csv: the true names of files whose name would have been too long for the file system."""

from __future__ import annotations

import os
from pathlib import Path

from attrs import field, frozen

__all__ = ["MAPPING", "TrueNames", "read_mapping"]

MAPPING = "mapping.csv"


@frozen
class TrueNames:
    """Hold the true names of renamed files.

    names: file -> true name.
    problems: lines that cannot be used, in sentences.
    """

    names: dict[str, str] = field(factory=dict)
    problems: tuple[str, ...] = ()


def read_mapping(folder: Path) -> TrueNames:
    """Read the mapping of a folder, lines ``file,true name`` without a header; empty without mapping.csv."""
    path = folder / MAPPING
    if not path.is_file():
        return TrueNames()
    names: dict[str, str] = {}
    problems = []
    there = frozenset(os.listdir(folder))
    for number, line in enumerate(path.read_text("utf-8-sig", "surrogateescape").split("\n"), start=1):
        file, _, name = (part.strip() for part in line.partition(","))
        if not file and not name:
            continue
        if not file or not name:
            problems.append(f"mapping.csv, line {number}, is not 'file,true name': {line[:80]!r}.")
        elif file not in there:
            problems.append(f"mapping.csv, line {number}, names {file[:80]}, which is not in the folder.")
        else:
            names[file] = name
    return TrueNames(names, tuple(problems))
