"""Group the files and the statistics of one folder into executions of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from attrs import frozen

from .file_name import FileName
from .find import KernelFolder
from .kernel import Kernel, KernelId, TensorSlot
from .loaders import Part
from .statistic_line import Row

__all__ = ["Kernels", "SavedTensor", "group"]

Ident = tuple[str, int]
"""input or output, and which."""


@frozen
class SavedTensor:
    """Represent a tensor in a file, before it is known to which execution it belongs."""

    path: Path
    name: FileName
    part: Part

    @property
    def key(self) -> KernelId:
        """Return the kernel to which it belongs."""
        return KernelId(self.name.op_type, self.name.op_name, self.name.task or 0, self.name.stream or 0)

    @property
    def ident(self) -> Ident:
        """Identify it among the kernel's tensors."""
        return (self.part.io, self.part.slot)

    @property
    def timestamp(self) -> int:
        """Return when it was saved, in microseconds."""
        return self.name.timestamp or 0


@frozen
class _Line:
    """Represent a line of statistic.csv, with the same properties as a saved tensor."""

    row: Row

    @property
    def key(self) -> KernelId:
        return KernelId(self.row.op_type, self.row.op_name, self.row.task, self.row.stream)

    @property
    def ident(self) -> Ident:
        return (self.row.io, self.row.slot)

    @property
    def timestamp(self) -> int:
        return self.row.timestamp


@frozen
class Kernels:
    """Hold the kernels of one folder, in order of time, parameters last.

    problems: what could not be grouped, in sentences.
    """

    kernels: tuple[Kernel, ...]
    problems: tuple[str, ...] = ()


class _Piece(Protocol):
    @property
    def key(self) -> KernelId: ...
    @property
    def ident(self) -> Ident: ...
    @property
    def timestamp(self) -> int: ...


P = TypeVar("P", bound=_Piece)


def group(
    folder: KernelFolder,
    files: Iterable[SavedTensor],
    rows: Iterable[Row],
    arguments: Mapping[tuple[str, str], Path],
) -> Kernels:
    """Group tensors and lines into executions of kernels.

    folder: where they are.
    files: every tensor that has a file.
    rows: the lines of statistic.csv.
    arguments: the file with the arguments of a kernel, by operator type and name.

    A kernel in a loop runs several times in one iteration: its tensors come again with a later timestamp.
    """
    by_files, by_rows = _executions(files), _executions(map(_Line, rows))
    kernels, problems = [], []
    for key in dict.fromkeys([*by_files, *by_rows]):
        saved, lines = by_files.get(key, []), by_rows.get(key, [])
        if saved and lines and len(saved) != len(lines):
            problems.append(
                f"{key.op_type[:80]} {key.name[:200]} ran {len(saved)} times by its files and {len(lines)} times by "
                "statistic.csv; "
                "they are paired from the first on."
            )
        for count in range(max(len(saved), len(lines))):
            files_of = saved[count] if count < len(saved) else {}
            lines_of = lines[count] if count < len(lines) else {}
            path = arguments.get((key.op_type, key.name))
            kernels.append(_kernel(folder, key, count, files_of, lines_of, path))
    kernels.sort(key=lambda kernel: (kernel.is_parameter, kernel.timestamp, kernel.name, kernel.count))
    return Kernels(tuple(kernels), tuple(problems))


def _executions(pieces: Iterable[P]) -> dict[KernelId, list[dict[Ident, P]]]:
    """Return the executions of each kernel in order of time: one begins where a tensor comes again."""
    out: dict[KernelId, list[dict[Ident, P]]] = {}
    for piece in sorted(pieces, key=lambda p: (p.timestamp, p.ident)):
        runs = out.setdefault(piece.key, [{}])
        if piece.ident in runs[-1]:
            runs.append({})
        runs[-1][piece.ident] = piece
    return out


def _kernel(
    folder: KernelFolder,
    key: KernelId,
    count: int,
    files: Mapping[Ident, SavedTensor],
    lines: Mapping[Ident, _Line],
    arguments: Path | None,
) -> Kernel:
    pieces: Sequence[_Piece] = [*files.values(), *lines.values()]
    first = min(piece.timestamp for piece in pieces)
    slots = []
    for ident in sorted({*files, *lines}):
        found, line = files.get(ident), lines.get(ident)
        piece = files[ident] if ident in files else lines[ident]
        slots.append(
            TensorSlot(
                key,
                *ident,
                timestamp=piece.timestamp,
                file=found.path if found else None,
                part=found.part if found else None,
                row=line.row if line else None,
            )
        )
    return Kernel(folder, key, first, count, tuple(slots), arguments)
