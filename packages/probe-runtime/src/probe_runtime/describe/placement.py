"""Say for which part of a record a value is described, and give each of its files a name that no other has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from attrs import define, field
from probe_format.names import tensor_file_name
from probe_format.values import ValuePath


@define
class FileNames:
    """The names of the tensor files of one value, apart from those of all others in its step. Safe from many threads.

    claimed: the names of this value's files.
    """

    claimed: list[str] = field(factory=list)
    _taken: set[str] = field(factory=set)
    _lock: threading.RLock = field(factory=threading.RLock)

    def of_another(self) -> FileNames:
        """Return the names of another value of the step."""
        return FileNames([], self._taken, self._lock)

    def claim(self, record: str, category: str, path: ValuePath, suffix: str) -> str:
        """Return a name for a tensor's file, with one more part where another value has that name.

        Dict keys that hold a dot can lead two values to one name: ``{"a.b": x, "a": {"b": y}}``.
        """
        with self._lock:
            name, number = tensor_file_name(record, category, path, suffix), 1
            while name in self._taken:
                number += 1
                name = tensor_file_name(record, category, (*path, f"~{number}"), suffix)
            self._taken.add(name)
            self.claimed.append(name)
            return name


@define
class Placement:
    """The part of a record that a value is described for. Each part has a placement of its own.

    record: the name of the record.
    category: the part as file names have it (``input``); empty for a record that is one value.
    wants_file: whether tensors are written to files.
    show: False when tensors are only looked for and not described.
    label: the part as the record has it (``input_args``), for the summary; None for a record that is one value.
    names: where file names are claimed, so that no two values get the same one. With None, a name that comes again
        belongs to the same value, and its file is replaced.
    lost: takes the error of a file that cannot be written. With None, a full disk is an error of the whole record.
    found: (path, tensor) of every tensor met on the way.
    """

    record: str
    category: str
    wants_file: bool
    show: bool = True
    label: str | None = ""
    names: FileNames | None = None
    lost: Callable[[OSError], None] | None = None
    found: list[tuple[ValuePath, Any]] = field(factory=list)
