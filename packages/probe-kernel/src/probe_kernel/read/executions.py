"""Group the files and the statistics of one folder into executions of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path

from attrs import asdict, evolve

from .find import KernelFolder
from .kernel import Kernel, KernelId, TensorSlot

__all__ = ["group"]

Ident = tuple[str, int]
"""input or output, and which."""
_NOTHING: Mapping[Ident, TensorSlot] = {}


def group(
    folder: KernelFolder,
    files: Iterable[TensorSlot],
    rows: Iterable[TensorSlot],
    arguments: Mapping[tuple[str, str], Path],
    problems: list[str],
) -> tuple[Kernel, ...]:
    """Group tensors and lines into executions of kernels; return these in order of time, parameters last.

    folder: where they are.
    files: every tensor that has a file.
    rows: every tensor that has a line of statistic.csv, with that alone.
    arguments: the file with the arguments of a kernel, by operator type and name.
    problems: gets a sentence for each kernel that ran more often by one of them than by the other.

    A kernel in a loop runs several times in one iteration: its tensors come again with a later timestamp.
    """
    by_files, by_rows = _executions(files), _executions(rows)
    kernels = []
    for key in dict.fromkeys([*by_files, *by_rows]):
        saved, lines = by_files.get(key, []), by_rows.get(key, [])
        if saved and lines and len(saved) != len(lines):
            problems.append(
                f"{key.op_type[:80]} {key.name[:200]} ran {len(saved)} times by its files and {len(lines)} times by "
                "statistic.csv; they are paired from the first on."
            )
        for count, (here, told) in enumerate(zip_longest(saved, lines, fillvalue=_NOTHING)):
            slots = [*here.values(), *(slot for ident, slot in told.items() if ident not in here)]
            first = min(slot.timestamp for slot in (*slots, *told.values()))
            slots = [evolve(s, row=told[i].row) if (i := (s.io, s.index)) in told else s for s in slots]
            slots.sort(key=lambda slot: (slot.io, slot.index))
            path = arguments.get((key.op_type, key.name))
            kernels.append(
                Kernel(
                    **asdict(key),
                    folder=folder,
                    timestamp=first,
                    count=count,
                    slots=tuple(slots),
                    arguments=path,
                )
            )
    kernels.sort(key=lambda kernel: (kernel.is_parameter, kernel.timestamp, kernel.name, kernel.count))
    return tuple(kernels)


def _executions(slots: Iterable[TensorSlot]) -> dict[KernelId, list[dict[Ident, TensorSlot]]]:
    """Return the executions of each kernel in order of time: one begins where a tensor comes again."""
    out: dict[KernelId, list[dict[Ident, TensorSlot]]] = {}
    for slot in sorted(slots, key=lambda s: (s.timestamp, s.io, s.index)):
        runs, ident = out.setdefault(slot.kernel, [{}]), (slot.io, slot.index)
        if ident in runs[-1]:
            runs.append({})
        runs[-1][ident] = slot
    return out
