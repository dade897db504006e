"""Define what a framework's package implements to describe tensors, and what it gets with each value."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from attrs import define, field
from probe_format.names import tensor_file_name
from probe_format.values import ValuePath
from probe_format.write import Summary


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


class Leaf(Protocol):
    """Describe the values of one framework: as JSON, with their statistics and files."""

    @property
    def tensor_types(self) -> frozenset[type]:
        """Return the types, without their subclasses, whose every value is a tensor for `tensor`."""

    @property
    def constant_types(self) -> frozenset[type]:
        """Return the types whose values never change; equal values of a type have equal JSON."""

    @property
    def waits(self) -> bool:
        """Return whether `flush_numbers` may have something to do: a number or an error has waited in this step."""

    @property
    def tally(self) -> dict[str, int]:
        """Return the number of tensors seen so far."""

    @property
    def summary(self) -> Summary:
        """Return what the report says about the numbers."""

    def leaf(self, placement: Placement, value: Any, path: ValuePath) -> Any:
        """Return the finished JSON of a value of the framework, else `probe_format.values.UNKNOWN`.

        Appends each tensor to ``placement.found``.
        """

    def tensor(self, placement: Placement, t: Any, path: ValuePath) -> bytes:
        """Return the tensor object of ``t``, of any shape and dtype; write its file where the placement wants one.

        It is finished JSON, with a hole for what comes later (`probe_format.journal.holes`). Call this within `aside`,
        which is entered once for all tensors of a record.
        """

    def count(self) -> None:
        """Count a tensor whose object was described a moment ago."""

    def aside(self) -> AbstractContextManager[Any]:
        """Return a context in which the user's modes and tensor subclasses do not see what Probe computes.

        It can be left and entered again.
        """

    def flush_numbers(self) -> None:
        """Write the numbers that wait on a device, if there are enough of them. Raises RunError as `hand_on` does."""

    def met(self, error: Exception) -> None:
        """Keep an error of the run, which came when Probe looked at a tensor, for `hand_on`."""

    def hand_on(self) -> None:
        """Raise RunError if an error of the run was met."""

    def flush(self) -> None:
        """Write everything that was begun, and wait until it is on disk."""

    def close(self) -> None:
        """Flush, and keep no tensor."""
