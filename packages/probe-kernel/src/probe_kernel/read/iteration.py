"""Read one folder with kernel files: its kernels, statistics, overflows, and what could not be understood."""

import itertools
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from attrs import evolve, frozen
from probe_format.errors import FormatError
from probe_format.suggest import nearest

from .file_name import FileName, flat
from .find import KernelFolder
from .kernel import Kernel, KernelId, TensorSlot
from .listing import Listing, list_files
from .loaders import contents
from .overflow import Overflow, is_overflow, read_overflow
from .statistic_csv import STATISTIC, Table, read_table
from .statistic_line import Row

Ident = tuple[str, int]
"""``input`` or ``output``, and the number of the tensor there."""
_NOTHING: Mapping[Ident, TensorSlot] = {}


@frozen(slots=False, eq=False)
class Iteration:
    """Give access to one folder with kernel files: one iteration of one graph, or one step."""

    folder: KernelFolder

    @property
    def path(self) -> Path:
        """Return the folder."""
        return self.folder.path

    @property
    def label(self) -> str:
        """Return the folder in words: ``rank 0, Net, graph 0, iteration 3``."""
        return self.folder.label

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Return each execution of each kernel in order of time; weights and inputs of the graph come last."""
        return self._grouped[0]

    def kernel(self, name: str, count: int = 0) -> Kernel:
        """Return one execution of a kernel.

        name: as in the files, the operator's full name, or its last part where only one kernel has it.
        count: which execution in this iteration, from 0.

        Raises KeyError, naming similar kernels, when there is no such execution.
        """
        found = [kernel for kernel in self.kernels if kernel.is_called(name)]
        exact = [kernel for kernel in found if kernel.count == count]
        if len({(kernel.op_type, kernel.name) for kernel in exact}) == 1:
            return exact[0]
        if exact:
            raise KeyError(f"{name!r} is the end of several names: {', '.join(k.name for k in exact[:5])}.")
        if found:
            raise KeyError(f"{name!r} ran {len(found)} times in {self.path}; there is no count {count}.")
        ends = [part for k in self.kernels for part in (k.name, k.name.rpartition("_")[2])]
        near = nearest(flat(name), ends)
        hint = f" Near: {', '.join(near)}." if near else ""
        raise KeyError(f"{self.path} has no kernel {name!r}.{hint}")

    @cached_property
    def overflows(self) -> tuple[Overflow, ...]:
        """Return the overflow files, JSON or in Ascend's own form. Raises FormatError when one cannot be read."""
        return tuple(read_overflow(path, name) for path, name in self._names.files if is_overflow(name))

    @cached_property
    def statistics(self) -> Table:
        """Return statistic.csv and the csv files that a device wrote as one table; empty without such files."""
        tables = []
        if (path := self.path / STATISTIC).is_file():
            tables.append(read_table(path))
        tables += [read_table(path, name) for path, name in self._names.files if name.kind == "csv"]
        chain = itertools.chain.from_iterable
        return Table(tuple(chain(t.rows for t in tables)), tuple(chain(t.problems for t in tables)))

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """Return what in this folder could not be understood, in sentences. Values are not read."""
        return (*self._names.problems, *self.statistics.problems, *self._grouped[1])

    @cached_property
    def _names(self) -> Listing:
        return list_files(self.path)

    @cached_property
    def _grouped(self) -> tuple[tuple[Kernel, ...], list[str]]:
        return _group(self.folder, self._names.files, self.statistics.rows)


def _group(
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
        for count, (own, told) in enumerate(itertools.zip_longest(saved, lines, fillvalue=_NOTHING)):
            first = min(slot.timestamp for slot in (*own.values(), *told.values()))
            both = sorted({**told, **own}.items())
            slots = tuple(evolve(slot, row=told[at].row) if at in told else slot for at, slot in both)
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
