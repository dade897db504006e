"""Write the tensor files of one step: name them, write equal bytes once, and defer writing to a thread."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from probe_format.excerpts import error_text
from probe_format.journal import events
from probe_format.names import tensor_file_name
from probe_format.tensors import write_parts
from probe_format.values import ValuePath
from probe_format.write import Coverage

from .equal_files import EqualFiles
from .file_queue import FileQueue, WriteFile, link_or_copy
from .leaf import Placement

__all__ = ["StepFiles"]

Buffer = bytes | memoryview
Parts = Sequence[Buffer] | Callable[[], Sequence[Buffer]]
#: Takes the path of a file, and a second name for it.
LinkFile = Callable[[str, str], None]


class StepFiles:
    """Write tensor files into one directory. Safe to use from many threads.

    directory: where files go.
    coverage: counts files that failed.
    append: takes the events of deferred files (spec/journal.md).
    deferred: whether files are written by a thread of their own.
    bound: how many bytes may wait for it.
    once: whether a file with the bytes of an earlier one becomes a second name of that one.
    refs: gives the numbers under ``$f``.
    write, link: make a file, and a second name of one; only for files that are not deferred.
    """

    def __init__(
        self,
        directory: Path,
        coverage: Coverage,
        append: Callable[[dict[str, Any]], None],
        *,
        deferred: bool = False,
        bound: int = 1 << 30,
        once: bool = False,
        refs: Iterator[int] | None = None,
        write: WriteFile = write_parts,
        link: LinkFile = link_or_copy,
    ) -> None:
        self._write = EqualFiles().write if once else write
        self._link = link
        self._folder = str(directory)
        self._coverage = coverage
        self._append = append
        self.deferred = deferred
        self._bound = bound
        self._refs = itertools.count(1) if refs is None else refs
        self._written: dict[Hashable, str] = {}
        self._content: dict[str, Hashable] = {}
        self._queue: FileQueue | None = None
        self._lock = threading.Lock()

    def save(
        self, placement: Placement, path: ValuePath, suffix: str, parts: Parts, content: Hashable = None
    ) -> dict[str, Any]:
        """Write one file; return the keys that its tensor object gets.

        placement: the part of a record that the tensor is in.
        path: the path of the tensor in that part.
        suffix: of the file name, ``npy``.
        parts: the pieces of the file, or a function that makes them when they are needed; they may change after this
            returns.
        content: equal for equal bytes, and only then: such a file becomes a second name of the first. With None, the
            file is always written.

        Raises OSError when the file cannot be written, unless deferred.
        """
        if not self.deferred:
            return {"data_name": self.write(placement, path, suffix, parts, content)}
        name = self._name(placement, path, suffix)
        target = f"{self._folder}/{name}"
        ref = self._later(Path(target), parts, self._written.get(content))
        self._remember(name, target, content)
        return {"$f": ref, "data_name": name}

    def write(
        self, placement: Placement, path: ValuePath, suffix: str, parts: Parts, content: Hashable = None
    ) -> str:
        """Write one file at once, and return its name; the rest is as for `save`."""
        claim = tensor_file_name if placement.names is None else placement.names.claim
        name = claim(placement.record, placement.category, path, suffix)
        target = f"{self._folder}/{name}"
        written = self._written
        known = written.get(content)
        if known is None:
            self._write(target, parts() if callable(parts) else parts)
        else:
            self._link(known, target)
        if name in self._content:
            self._remember(name, target, content)
        elif content is not None:
            self._content[name] = content
            if content not in written:
                written[content] = target
        return name

    def _name(self, placement: Placement, path: ValuePath, suffix: str) -> str:
        claim = tensor_file_name if placement.names is None else placement.names.claim
        return claim(placement.record, placement.category, path, suffix)

    def _remember(self, name: str, target: str, content: Hashable) -> None:
        """Note which bytes are under a name."""
        before = self._content.pop(name, None)
        if before is not None and before != content and self._written.get(before) == target:
            del self._written[before]  # the name has other bytes now
        if content is not None:
            self._content[name] = content
            self._written.setdefault(content, target)

    def _later(self, target: Path, parts: Parts, known: str | None) -> int:
        with self._lock:
            if self._queue is None:
                self._queue = FileQueue(self._bound, self._done, self._failed, self._write)
            queue = self._queue
        ref = next(self._refs)
        if known is not None:
            queue.link(ref, target, Path(known))
            return ref
        # The run may go on changing the memory.
        copies = [bytes(part) for part in (parts() if callable(parts) else parts)]
        queue.put(ref, target, lambda: copies, sum(len(c) for c in copies))
        return ref

    def _done(self, refs: list[int]) -> None:
        self._append(events.file(refs))

    def _failed(self, path: Path, error: Exception) -> None:
        self._coverage.add("failed", "tensor files")
        self._append(events.fault(f"writing {path.name}", error_text(error)))

    def flush(self) -> None:
        """Wait until every file that was begun is on disk or has failed."""
        if self._queue is not None:
            self._queue.flush()

    def close(self) -> None:
        """Flush, and end the writing thread if there is one."""
        self.flush()
        if self._queue is not None:
            self._queue.close()
            self._queue = None
        self._written.clear()
        self._content.clear()
