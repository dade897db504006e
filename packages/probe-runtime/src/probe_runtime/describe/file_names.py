"""Give each tensor file of a step a name that no other file has."""

from __future__ import annotations

import threading

from attrs import define, field
from probe_format.names import tensor_file_name
from probe_format.values import ValuePath


@define
class FileNames:
    """The names of the tensor files of one value, apart from those of all others in its step. Safe from many threads.

    claimed: these names.
    """

    claimed: list[str] = field(factory=list)
    _taken: set[str] = field(factory=set)
    _lock: threading.Lock = field(factory=threading.Lock)

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
