"""Where a value stands while it is described: its record, its files, the tensors met on the way."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from probe_format.names import tensor_file_name
from probe_format.values import ValuePath

__all__ = ["FileNames", "LeafOptions", "Spot"]


@frozen
class LeafOptions:
    """What to say about each tensor. directory: where its file goes. checksum: None, ``md5`` or ``xor``.

    statistics: whether there are numbers. zero_count: whether zeros are counted.
    """

    directory: Path
    statistics: bool = True
    checksum: str | None = None
    zero_count: bool = False


@define
class FileNames:
    """The tensor files of one step, so that no two values ever get the same one."""

    _taken: set[str] = field(factory=set)
    _lock: threading.Lock = field(factory=threading.Lock)

    def claim(self, record: str, path: ValuePath, suffix: str) -> ValuePath:
        """``path`` itself, or with one more part where another value has that file's name.

        Hostile keys do that: ``{"a.b": x, "a": {"b": y}}``.
        """
        with self._lock:
            free, number = path, 1
            while (name := tensor_file_name(record, "", free, suffix)) in self._taken:
                number += 1
                free = (*path, f"~{number}")
            self._taken.add(name)
            return free


@define
class Spot:
    """One record under way. file: whether tensor files are wanted.

    found: (leaf of the framework, path, tensor) of every tensor that can have a gradient.
    """

    record: str
    file: bool
    names: FileNames
    found: list[tuple[Any, ValuePath, Any]] = field(factory=list)
