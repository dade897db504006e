"""Group the files and the statistics of one folder into executions of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path

from attrs import evolve
from probe_format.errors import FormatError

from .file_name import FileName
from .find import KernelFolder
from .kernel import Kernel, KernelId, TensorSlot
from .loaders import contents
from .overflow import is_overflow
from .statistic_line import Row

__all__ = ["group"]

Ident = tuple[str, int]
"""input or output, and which."""
_NOTHING: Mapping[Ident, TensorSlot] = {}


def group(
    folder: KernelFolder, files: Iterable[tuple[Path, FileName]], rows: Iterable[Row]
) -> tuple[tuple[Kernel, ...], list[str]]:
    """Group the files and the lines of statistic.csv in ``folder`` into executions of kernels.

    Returns these in order of time, parameters last, and a sentence for each file that cannot be read, and for each
    kernel that ran more often by its files than by its lines, or less often.

    A kernel in a loop runs several times in one iteration: its tensors come again with a later timestamp.
    """
    here: list[TensorSlot] = []
    arguments: dict[tuple[str, str], Path] = {}
    problems: list[str] = []
    for path, name in files:
        if name.kind == "args":
            arguments[name.op_type, name.op_name] = path
        elif not is_overflow(name):
            try:
                parts, odd = contents(path, name)
            except (FormatError, OSError) as error:
                problems.append(str(error))
                continue
            key = KernelId(name.op_type, name.op_name, name.task or 0, name.stream or 0)
            here += (TensorSlot(key, p.io, p.slot, name.timestamp or 0, path, p) for p in parts)
            problems += odd
    by_files = _executions(here)
    by_rows = _executions(
        TensorSlot(KernelId(r.op_type, r.op_name, r.task, r.stream), r.io, r.slot, r.timestamp, row=r)
        for r in rows
    )
    kernels = []
    for key in dict.fromkeys([*by_files, *by_rows]):
        saved, lines = by_files.get(key, []), by_rows.get(key, [])
        if saved and lines and len(saved) != len(lines):
            problems.append(
                f"{key.op_type[:80]} {key.name[:200]} ran {len(saved)} times by its files and {len(lines)} times by "
                "statistic.csv; they are paired from the first on."
            )
        for count, (own, told) in enumerate(zip_longest(saved, lines, fillvalue=_NOTHING)):
            first = min(slot.timestamp for slot in (*own.values(), *told.values()))
            slots = tuple(
                evolve(slot, row=told[at].row) if at in told else slot
                for at, slot in sorted({**told, **own}.items())
            )
            ident = (key.op_type, key.name, key.task, key.stream)
            kernels.append(Kernel(*ident, folder, first, count, slots, arguments.get(ident[:2])))
    kernels.sort(key=lambda kernel: (kernel.is_parameter, kernel.timestamp, kernel.name, kernel.count))
    return tuple(kernels), problems


def _executions(slots: Iterable[TensorSlot]) -> dict[KernelId, list[dict[Ident, TensorSlot]]]:
    """Return the executions of each kernel in order of time: one begins where a tensor comes again."""
    out: dict[KernelId, list[dict[Ident, TensorSlot]]] = {}
    for slot in sorted(slots, key=lambda s: (s.timestamp, s.io, s.index)):
        runs, ident = out.setdefault(slot.kernel, [{}]), (slot.io, slot.index)
        if ident in runs[-1]:
            runs.append({})
        runs[-1][ident] = slot
    return out
