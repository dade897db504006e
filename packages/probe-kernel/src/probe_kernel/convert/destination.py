"""Write the files of a conversion: refuse two sources for one file, shorten names that are too long, and record their
true names in mapping.csv.
"""

import os
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

from probe_format.errors import FormatError
from probe_format.safe_files import replace_file

from probe_kernel.output_folder import file_in
from probe_kernel.read.find import MAPPING

from .reordered import Reordered

_LONGEST = 254  # msaccucmp renames from 255 bytes on


class Destination:
    """Record the files that one conversion has written. Its threads share it."""

    def __init__(self) -> None:
        self._owners: dict[Path, Path] = {}
        self._lines: dict[Path, set[str]] = {}
        self._lock = threading.Lock()

    def write(
        self, folder: Path, name: str, source: Path, parts: Sequence[bytes | memoryview] | Reordered
    ) -> Path:
        """Write a file, in place of one that an earlier conversion wrote; return its path.

        name: is shortened where it is too long.
        source: the bin file that it is converted from.

        Raises FormatError when another source has become that file, or the name is not one of a file in ``folder``;
        OSError when the file cannot be written.
        """
        short = short_name(name)
        path = file_in(folder, short)
        if short != name and "\n" in name:
            raise FormatError(
                f"{folder}: {name!r} has a line break, which a line of mapping.csv cannot hold."
            )
        if (owner := self._owners.setdefault(path, source)) != source:
            raise FormatError(
                f"{path} has come from {owner} already: the names differ only in what this --type leaves out. "
                "Convert the two into different folders, or use another --type."
            )
        if isinstance(parts, Reordered):
            parts.write(path)
        else:
            replace_file(path, parts)
        if short != name:
            self._record_name(folder, f"{short},{name}")
        return path

    def _record_name(self, folder: Path, line: str) -> None:
        """Append a line to mapping.csv at once, so that a conversion that is stopped leaves the names of its files."""
        path = folder / MAPPING
        with self._lock:
            lines = self._lines.get(folder)
            if lines is None:
                # From here on it is Probe's own file: the earlier one may be a link to something else.
                there = path.is_file() and not path.is_symlink()
                text = path.read_text("utf-8", "surrogateescape") if there else ""
                known = dict.fromkeys([*filter(None, text.split("\n")), line])
                replace_file(path, os.fsencode("".join(f"{each}\n" for each in known)))
                lines = self._lines[folder] = set(known)
            if line not in lines:
                lines.add(line)
                fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
                with os.fdopen(fd, "ab") as file:  # what one write() leaves out, the next one takes
                    file.write(os.fsencode(f"{line}\n"))


def short_name(name: str) -> str:
    if len(os.fsencode(name)) <= _LONGEST:
        return name
    return uuid.uuid3(uuid.NAMESPACE_DNS, name).hex + Path(name).suffix
