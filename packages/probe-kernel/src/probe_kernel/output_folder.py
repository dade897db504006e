"""The folder that a command writes to: no name from a dump, and no link planted there, leads out of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from probe_format.errors import FormatError, UsageError
from probe_format.safe_files import make_folder
from probe_format.tensors import write_parts

__all__ = ["file_in", "folder_in", "replace_file"]

_LONGEST = 255


def folder_in(out: Path, below: Path | str = "") -> Path:
    """Make ``out`` and the folder ``below`` in it; return that.

    out: as the user gave it; it may be a link. below: a relative path. Raises UsageError where part of ``below`` is a
    link, FormatError where it would lead out of ``out``, OSError.
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
    """Return the file ``name`` of ``folder``. Raises FormatError for a name that is not one of a file in it."""
    why = ""
    if not name.strip(".") or "/" in name:
        why = "it would lead out of the folder"
    elif any(ord(char) < 32 for char in name):
        why = "it has a control character"
    elif len(os.fsencode(name)) > _LONGEST:
        why = f"it is longer than the {_LONGEST} bytes that a file system takes"
    if why:
        shown = name if len(name) < 120 else f"{name[:100]}..."
        raise FormatError(f"{folder}: {shown!r} is no name for a file there: {why}.")
    return folder / name


def replace_file(path: Path, parts: Sequence[bytes | memoryview]) -> None:
    """Write ``path`` whole or not at all, in place of what has that name; a link is replaced, not followed.

    Raises OSError.
    """
    part = path.with_name(f".tmp-{os.getpid()}-{path.name}"[:_LONGEST])
    write_parts(part, parts)
    try:
        os.replace(part, path)
    except OSError:
        part.unlink()
        raise
