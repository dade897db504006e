"""Write the watch file of one process, which gets a row for each step, with the norm of each watched tensor.

A row is written as one frame. Further frames name the tensors, and tell of faults and of what in a step called for
attention. spec/watch.md specifies the file.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from attrs import frozen

from probe_format import jsonio, layout
from probe_format.journal.events import Event, fault
from probe_format.journal.frames import JournalWriter
from probe_format.safe_files import Folder, locked

MAGIC = b"PROBEW1\n"
VERSION = "1.0"
Kind = Literal["gradients", "weights", "moments", "updates", "activations"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: The number of a column that has no norm in a step.
ABSENT = -1.0
_SMALLEST, _LARGEST = 1.1754943508222875e-38, 3.4028234663852886e38  # of the normal float32


@frozen
class Column:
    """Name what a number is of.

    layer: the qualified name of the module. what: the tensor in it, as ``weight`` or ``output.0``.
    elements: how many it had when it was named.
    """

    kind: Kind | Literal["?"]
    layer: str
    what: str
    elements: int

    @property
    def name(self) -> str:
        """Return layer and tensor, as ``blocks.0.up.weight``."""
        return f"{self.layer}.{self.what}" if self.layer else self.what


def free_place(dump_path: Path, rank: int | None) -> Path | None:
    """Return the path of the watch file that this process may write.

    It is named after the rank, or ``proc<pid>`` where a living process holds that file. None where an earlier run
    left the rank's file.
    """
    path = layout.watch_file(dump_path, rank)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return path
    try:
        return None if locked(fd) else path.with_name(f"proc{os.getpid()}{path.suffix}")
    finally:
        os.close(fd)


class WatchWriter:
    """Write the file of one process, which is held until `close`; a fork()ed child writes nothing."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """Make the file with its header. Raises OSError when it cannot, FileExistsError when one is there."""
        self.path = path
        folder = Folder(path.parent, path.parent.parent).make()
        os.close(folder.new_file(path.name))
        self._journal = JournalWriter(path, lambda *_: None, folder=folder, magic=MAGIC)
        locked(self._journal.descriptor)
        about = {"watch_version": VERSION, **header, "started": time.time()}
        self._journal.append(({"k": "head", "header": about}, ()))
        self._named = 0

    def columns(self, columns: Sequence[Column]) -> None:
        """Name all columns; those named before are the first of them. Raises OSError as every other call."""
        fresh = columns[self._named :]
        if fresh:
            listed = jsonio.dumps([[c.kind, c.layer, c.what, c.elements] for c in fresh])
            self._append(({"k": "columns", "from": self._named}, (listed,)))
            self._named = len(columns)

    def row(self, step: int, norms: np.ndarray, bad: Mapping[int, tuple[int, int]], skipped: int = 0) -> None:
        """Write the numbers of a step.

        norms: float64, one for each column; `ABSENT` where there is none.
        bad: column -> how many elements are NaN, and how many infinite.
        skipped: how many updates a loss scaler skipped.
        """
        head: dict[str, Any] = {"k": "row", "step": step, "t": time.time()}
        with np.errstate(over="ignore", under="ignore"):
            narrow = norms.astype("<f4")
        if bad:
            head["bad"] = {str(column): counts for column, counts in bad.items()}
        outside = (norms > _LARGEST) | ((norms > 0.0) & (norms < _SMALLEST))
        if outside.any():
            found = ((int(i), float(norms[i])) for i in np.flatnonzero(outside))
            wide = {str(i): norm for i, norm in found if math.isfinite(norm)}
            head |= {"wide": wide} if wide else {}
        if skipped:
            head["skipped"] = skipped
        self._append((head, (narrow.tobytes(),)))
        self.path.stat()  # raises where the file was removed: the write raises nothing

    def unseen(self, what: str, why: str) -> None:
        self._append(({"k": "unseen", "what": what, "why": why}, ()))

    def trigger(self, step: int, told: Mapping[str, Any]) -> None:
        """Write that a step met a condition. told: when, why and rank."""
        self._append(({"k": "trigger", "step": step, **told}, ()))

    def fault(self, where: str, message: str) -> None:
        self._append(fault(where, message))

    def close(self) -> None:
        """Write that nothing follows, and close the file; more calls do nothing."""
        self._journal.refused = lambda error: None
        self._append(({"k": "end", "t": time.time()}, ()))
        self._journal.ended = True
        if not self._journal.forked:
            self._journal.close()

    def _append(self, event: Event) -> None:
        if not self._journal.forked:
            self._journal.append(event)
