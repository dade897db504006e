"""The files of one folder, with their true names."""

from __future__ import annotations

import re
from pathlib import Path

from attrs import frozen

from .filename import FileName, is_file_name, parse_file_name
from .mapping import MAPPING, read_mapping
from .places import is_auxiliary
from .statistic import STATISTIC

__all__ = ["Listing", "list_files"]

#: What a name becomes that was too long: digits by the dumpers, a hash by msaccucmp.
_RENAMED = re.compile(r"(?:\d+|[0-9a-f]{32})(?:\.\w+)?")


@frozen
class Listing:
    """The files of a folder with their true names. problems: those that have none."""

    files: tuple[tuple[Path, FileName], ...]
    problems: tuple[str, ...]


def list_files(folder: Path) -> Listing:
    """The files of a folder; those that cannot be understood are among its problems. Raises OSError."""
    mapping = read_mapping(folder)
    files, problems = [], list(mapping.problems)
    for path in sorted(folder.iterdir()):
        if path.name in (STATISTIC, MAPPING) or path.is_dir():
            continue
        name = mapping.names.get(path.name, path.name)
        if is_file_name(name) and not is_auxiliary(name):
            files.append((path, parse_file_name(name)))
        elif not is_auxiliary(name):
            why = (
                "its true name in mapping.csv is none"
                if name != path.name
                else "it has no kernel file's name"
            )
            if name == path.name and _RENAMED.fullmatch(path.name):
                why = "it was renamed, and mapping.csv does not have its true name"
            problems.append(f"{path.name} is unknown: {why}.")
    return Listing(tuple(files), tuple(problems))
