"""Tell all ranks, by one small file in dump_path, that a step met a condition, for which steps are kept and dumped.

Each rank writes there what it has met, and reads what others have. The conditions are those of the configuration's
key `when` (spec/config.md).
"""

import contextlib
import os
from pathlib import Path
from typing import Any

from attrs import asdict, frozen
from probe_format import jsonio
from probe_format.excerpts import cut
from probe_format.safe_files import FILE_MODE, make_folder

NAME = "triggers.jsonl"
#: Each line has so many bytes: where two ranks write at once on a file system that cannot append, one line stays whole.
LINE = 1024


@frozen
class Trigger:
    """Hold that a condition was met.

    step: the step that met it.
    at: the first step that is dumped because of it.
    when: the condition as it was configured.
    why: what met it, in words.
    rank: of the process that met it; None where the run is not distributed.
    """

    step: int
    at: int
    when: str
    why: str
    rank: int | None = None

    @property
    def told(self) -> dict[str, Any]:
        """Return what the report of the step that met the condition says of it."""
        return {"when": self.when, "why": self.why, "rank": self.rank}

    @property
    def cause(self) -> dict[str, Any]:
        """Return what the headers of the steps that are dumped because of this trigger say of it."""
        return {"triggered": {"step": self.step, "when": self.when, "rank": self.rank}}


class TriggerFile:
    """The triggers of all ranks."""

    def __init__(self, dump_path: Path) -> None:
        """Open nothing yet. What the file has by now is an earlier run's: no step of this one can have ended."""
        self._path = dump_path / NAME
        self._read = 0
        with contextlib.suppress(OSError):
            self._read = os.stat(self._path).st_size // LINE * LINE

    def news(self) -> list[Trigger]:
        """Return the triggers that were written since the last call. Raises OSError when the file cannot be read.

        The file is opened each time: NFS shows what others wrote to whoever opens it then.
        """
        fd = self._open()
        try:
            size = os.fstat(fd).st_size // LINE * LINE
            start, self._read = self._read, size
            raw = os.pread(fd, size - start, start) if size > start else b""
        finally:
            os.close(fd)
        lines = (raw[at : at + LINE] for at in range(0, len(raw), LINE))
        return [found for line in lines if (found := _parsed(line)) is not None]

    def write(self, trigger: Trigger) -> None:
        """Tell a trigger to the other ranks, and to the next `news` as well. Raises OSError when it cannot."""
        told = asdict(trigger) | {"when": cut(trigger.when, 100), "why": cut(trigger.why, 200)}
        line = jsonio.dumps(told)
        if len(line) >= LINE:  # of characters of several bytes
            line = jsonio.dumps(told | {"when": "", "why": ""})
        fd = self._open()
        try:
            os.write(fd, line.ljust(LINE - 1) + b"\n")
        finally:
            os.close(fd)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self._path, flags, FILE_MODE)
        except FileNotFoundError:
            make_folder(self._path.parent)
            return os.open(self._path, flags, FILE_MODE)


def _parsed(line: bytes) -> Trigger | None:
    """Return the trigger in a line; None where two ranks have written over each other."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        told = jsonio.loads(line)
        trigger = Trigger(**told)
        if all(type(number) is int for number in (trigger.step, trigger.at)):
            return trigger
    return None
