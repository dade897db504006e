"""List the files of one folder, with their true names (mapping.csv has those that were too long).

What cannot be understood, of the files or of mapping.csv, is told in sentences.
"""

import os
import re
from pathlib import Path

from attrs import frozen
from probe_format.plain_files import read_file

from .file_name import FileName, is_file_name, parse_file_name
from .find import MAPPING, is_auxiliary
from .statistic_csv import STATISTIC

NO_TRUE_NAME = "its true name in mapping.csv is not a file name"

#: The names that replace too long ones: the dumpers use digits, msaccucmp a hash.
_RENAMED = re.compile(r"(?:\d+|[0-9a-f]{32})(?:\.\w+)?")


@frozen
class Listing:
    """Hold the files of a folder with their true names.

    problems: the files without a true name, and the lines of mapping.csv that cannot be used, in sentences.
    lost: those of the problems that are about renamed files.
    """

    files: tuple[tuple[Path, FileName], ...]
    problems: tuple[str, ...]
    lost: tuple[str, ...] = ()


def list_files(folder: Path) -> Listing:
    """List the files of a folder. What cannot be understood is among the problems. Raises OSError."""
    names, problems = read_mapping(folder)
    files, lost = [], [*problems]
    for path in sorted(folder.iterdir()):
        if path.name in (STATISTIC, MAPPING) or path.is_dir():
            continue
        name = names.get(path.name, path.name)
        if not path.is_file():  # opening a pipe would block
            problems.append(f"{path.name} is neither a file nor a folder, or a link that leads nowhere.")
        elif is_file_name(name):
            files.append((path, parse_file_name(name)))
        elif not is_auxiliary(name):
            why = NO_TRUE_NAME if name != path.name else "it has no kernel file's name"
            if name == path.name and _RENAMED.fullmatch(path.name):
                why = "it was renamed, and mapping.csv does not have its true name"
            problems.append(f"{path.name} is unknown: {why}.")
            if why != "it has no kernel file's name":
                lost.append(problems[-1])
    return Listing(tuple(files), tuple(problems), tuple(lost))


def read_mapping(folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return the true names of a folder's renamed files, and sentences on lines of mapping.csv of no use.

    The lines are ``file,true name``, without a header; there is nothing without mapping.csv.
    """
    path = folder / MAPPING
    names: dict[str, str] = {}
    problems: list[str] = []
    if not path.is_file():
        return names, problems
    there = frozenset(os.listdir(folder))
    lines = read_file(path).decode("utf-8-sig", "surrogateescape").split("\n")
    for number, line in enumerate(lines, start=1):
        file, _, name = (part.strip() for part in line.partition(","))
        if not file and not name:
            continue
        if not file or not name:
            problems.append(f"mapping.csv, line {number}, is not 'file,true name': {line[:80]!r}.")
        elif file not in there:
            problems.append(f"mapping.csv, line {number}, names {file[:80]}, which is not in the folder.")
        else:
            names[file] = name
    return names, problems
