"""Where converted files go: one name for one file, and a line of mapping.csv for each name that was too long."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

from probe_format.arrays import write_parts
from probe_format.errors import FormatError

from .mapping import MAPPING

__all__ = ["Destination", "short_name"]

_LONGEST = 254  # msaccucmp renames from 255 bytes on


class Destination:
    """Shared by the threads of one conversion, for as long as it runs."""

    def __init__(self) -> None:
        self._owners: dict[Path, Path] = {}
        self._lines: dict[Path, set[str]] = {}
        self._lock = threading.Lock()

    def write(self, folder: Path, name: str, source: Path, parts: Sequence[bytes | memoryview]) -> Path:
        """Write ``parts`` as ``folder/name`` (or as its short name), in place of what an earlier conversion wrote.

        Raises FormatError where another source has become that file, OSError.
        """
        short = short_name(name)
        path = folder / short
        if (owner := self._owners.setdefault(path, source)) != source:
            raise FormatError(
                f"{path} has come from {owner} already: the names differ only in what this --type leaves out. "
                "Convert the two into different folders, or use another --type."
            )
        write_parts(path, parts)
        if short != name:
            self._note(folder, f"{short},{name}")
        return path

    def _note(self, folder: Path, line: str) -> None:
        """At once, and not at the end: who stops the command wants to know the names of what is there."""
        path = folder / MAPPING
        with self._lock:
            lines = self._lines.get(folder)
            if lines is None:
                there = path.read_text("utf-8", "surrogateescape").splitlines() if path.is_file() else []
                lines = self._lines[folder] = set(there)
            if line not in lines:
                lines.add(line)
                with path.open("a", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(f"{line}\n")


def short_name(name: str) -> str:
    """``name``, or where it is too long a name made from it (a UUID of it), with its ending."""
    if len(os.fsencode(name)) <= _LONGEST:
        return name
    return uuid.uuid3(uuid.NAMESPACE_DNS, name).hex + Path(name).suffix
