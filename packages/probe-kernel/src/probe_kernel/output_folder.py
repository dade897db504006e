"""Make the folder that a command writes to, so that no name from a dump and no link inside leads out of it, and say
why a folder cannot be written to.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from probe_format.errors import FormatError, Problem, UsageError
from probe_format.safe_files import make_folder

_LONGEST = 255


def folder_in(out: Path, below: Path | str = "") -> Path:
    """Make ``out`` and the folder ``below`` in it; return that.

    out: as the user gave it; it may be a link.
    below: a relative path.
    Raises UsageError when part of ``below`` is a link, FormatError when it would lead out of ``out``, OSError when it
    cannot be made.
    """
    make_folder(out)
    path = out
    for part in Path(below).parts:
        path = file_in(path, part)
        if path.is_symlink():
            raise UsageError(f"{path} is a link, and what is written must stay in {out}. Remove it.")
        make_folder(path)
    return path


def file_in(folder: Path, name: str) -> Path:
    """Return the file ``name`` of ``folder``. Raises FormatError when the name is not one of a file in it."""
    why = ""
    if not name.strip(".") or "/" in name:
        why = "it would lead out of the folder"
    elif any(ord(char) < 32 for char in name):
        why = "it has a control character"
    elif len(os.fsencode(name)) > _LONGEST:
        why = f"it is longer than the {_LONGEST} bytes that a file system takes"
    if why:
        shown = name if len(name) < 120 else f"{name[:100]}..."
        raise FormatError(f"{folder}: {shown!r} is not a name for a file there: {why}.")
    return folder / name


def unwritable(path: str | os.PathLike[str]) -> Iterator[Problem]:
    """Yield why nothing can be written below ``path``, if so. The folder need not exist, and is not made."""
    there = os.path.abspath(path)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        what = f"{there} is a file, so there can be no folder {os.fspath(path)}."
        yield Problem("path", what, "Give another path.")
    elif not os.access(there, os.W_OK | os.X_OK):
        yield Problem("path", f"there is no permission to write to {there}.", "Give another path.")
