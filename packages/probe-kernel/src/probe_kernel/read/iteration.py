"""Read one folder with kernel files: its kernels, statistics, overflows, and what could not be understood."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from attrs import frozen
from probe_format.suggest import nearest

from .executions import group
from .file_name import flat
from .find import KernelFolder
from .kernel import Kernel
from .listing import Listing, list_files
from .overflow import Overflow, is_overflow, read_overflow
from .statistic_csv import STATISTIC, Table, read_table

__all__ = ["Iteration"]


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
        near = nearest(
            flat(name), [part for k in self.kernels for part in (k.name, k.name.rpartition("_")[2])]
        )
        raise KeyError(
            f"{self.path} has no kernel {name!r}." + (f" Near: {', '.join(near)}." if near else "")
        )

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
        return Table(
            tuple(row for table in tables for row in table.rows),
            tuple(problem for table in tables for problem in table.problems),
        )

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """Return what in this folder could not be understood, in sentences. Values are not read."""
        return (*self._names.problems, *self.statistics.problems, *self._grouped[1])

    @cached_property
    def _names(self) -> Listing:
        return list_files(self.path)

    @cached_property
    def _grouped(self) -> tuple[tuple[Kernel, ...], list[str]]:
        """Return the kernels, and what could not be read or grouped."""
        return group(self.folder, self._names.files, self.statistics.rows)
