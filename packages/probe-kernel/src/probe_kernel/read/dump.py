"""Open a kernel dump: its ranks, with their iterations, graphs, execution orders and metadata, each read when first
used.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from attrs import field, frozen
from probe_format.errors import FormatError
from probe_format.plain_files import read_file
from probe_format.schema import parse_object

from probe_kernel.graph.ir_text import read_ir
from probe_kernel.graph.model import Graph

from . import find
from .find import KernelFolder
from .iteration import Iteration

ORDER_FILES = "execution_order/ms_execution_order_graph_*.csv"
_HEADER = "NodeExecutionOrder-FullNameWithScope"
_NUMBER = re.compile(r"_graph_(\d+)\.")
_READ = ("order", "history", "metadata")


def open(path: str | Path) -> "Dump":
    """Open a kernel dump: the folder given to the dumper, or any folder in it.

    Finds the folders with kernel files and reads nothing else; names are parsed when a folder is first used, values
    when they are loaded. Raises FormatError when there is no kernel dump.
    """
    found = find.find(Path(path))
    ranks: dict[tuple[int | None, Path], list[KernelFolder]] = {}
    for folder in found:
        # Folders of a tree without rank folders belong together where their rank is the same.
        key = folder.rank_path if folder.in_rank else Path()
        ranks.setdefault((folder.rank, key), []).append(folder)
    return Dump(
        Path(path),
        tuple(Rank(n, there[0].rank_path, tuple(map(Iteration, there))) for (n, _), there in ranks.items()),
    )


@frozen
class Dump:
    """Hold the ranks of an opened kernel dump. ranks: in the order of their numbers."""

    path: Path
    ranks: tuple["Rank", ...]

    def rank(self, number: int | None) -> "Rank":
        """Return the rank with this number. Raises KeyError, naming the existing ones, when it does not exist."""
        for rank in self.ranks:
            if rank.number == number:
                return rank
        raise KeyError(f"{self.path} has no rank {number}; it has {[rank.number for rank in self.ranks]}.")

    @property
    def iterations(self) -> Iterator[Iteration]:
        """Yield every folder with kernel files, of every rank."""
        return (iteration for rank in self.ranks for iteration in rank.iterations)

    @property
    def problems(self) -> Iterator[str]:
        """Yield a sentence for each file, line and graph that could not be understood. Reads all names."""
        for rank in self.ranks:
            yield from rank.problems
            for iteration in rank.iterations:
                yield from (f"{iteration.path}: {problem}" for problem in iteration.problems)


@frozen(slots=False, eq=False)
class Rank:
    """Give access to the part of a dump that one rank, or device, wrote.

    number: None where the paths do not have it.
    path: the folder that also holds the graphs, if there are any.
    """

    number: int | None
    path: Path
    iterations: tuple[Iteration, ...] = field(repr=False)

    @cached_property
    def graphs(self) -> Mapping[int, "LazyGraph"]:
        """Return the graphs in text form, by number; empty where none were saved."""
        files = find_graph_files(self.path, "graphs/ms_output_trace_code_graph_*.ir")
        return {number: LazyGraph(path) for number, path in files.items()}

    @cached_property
    def order(self) -> Mapping[int, tuple[str, ...]]:
        """Return the full names of each graph's nodes in the order in which they run, by graph number."""
        files = find_graph_files(self.path, ORDER_FILES)
        return {number: read_order(path) for number, path in files.items()}

    @cached_property
    def history(self) -> Mapping[int, tuple[int, ...]]:
        """Return the iterations in which each graph ran, by graph number.

        Raises FormatError when a line of their files is not a number.
        """
        files = find_graph_files(self.path, "execution_order/ms_global_execution_order_graph_*.csv")
        return {number: read_history(path) for number, path in files.items()}

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """Return the JSON files of ``.dump_metadata`` by name without ``.json``.

        ``config`` has device and version, ``data_dump`` the dump's configuration.
        Raises FormatError when a file is not JSON.
        """
        folder = self.path / ".dump_metadata"
        files = [path for path in sorted(folder.glob("*.json")) if path.is_file()]
        return {path.stem: parse_object(read_file(path), str(path)) for path in files}

    @property
    def problems(self) -> Iterator[str]:
        """Yield what could not be understood outside the iterations: graphs, order, metadata, unknown files."""
        for owner, name in (*((lazy, "graph") for lazy in self.graphs.values()), *((self, n) for n in _READ)):
            try:
                found = getattr(owner, name)
                yield from found.problems if isinstance(found, Graph) else ()
            except (FormatError, OSError) as error:
                yield str(error)
        if self.iterations[0].folder.in_rank:
            for depth in ("*", "*/*", "*/*/*"):
                for path in sorted(self.path.glob(depth)):
                    if path.is_file() and not find.is_beside(path.relative_to(self.path)):
                        yield f"{path} is unknown: no dumper puts such a file there."


@frozen(slots=False, eq=False)
class LazyGraph:
    """Parse a graph's file at the first use. graph raises FormatError when the file cannot be parsed."""

    path: Path

    @cached_property
    def graph(self) -> Graph:
        return read_ir(self.path)


def read_order(path: Path) -> tuple[str, ...]:
    """Read the full names of the nodes, in order, from a ms_execution_order_graph_N.csv.

    Raises FormatError when the file has no line, or zeros (a full disk leaves such files), OSError when it cannot be
    read.
    """
    text = read_file(path).decode("utf-8-sig", "replace")
    if not text.strip() or "\0" in text:
        raise FormatError(f"{path} should have a header and one node's name a line: it is empty or damaged.")
    lines = [line.strip() for line in text.splitlines()]
    return tuple(line for line in lines if line and line != _HEADER)


def read_history(path: Path) -> tuple[int, ...]:
    """Read the iterations in which the graph ran from a ms_global_execution_order_graph_N.csv.

    Raises FormatError when a line is not a number, OSError when the file cannot be read.
    """
    lines = [line.strip() for line in read_file(path).decode("utf-8-sig", "replace").splitlines()]
    try:
        return tuple(int(line) for line in lines if line)
    except ValueError as error:
        raise FormatError(f"{path} should have one iteration number a line ({error}).") from None


def find_graph_files(rank: Path, pattern: str) -> dict[int, Path]:
    """Return the files below a rank's folder that match ``pattern``, by the number of their graph."""
    found = {}
    for path in sorted(rank.glob(pattern)):
        if path.is_file() and (number := _NUMBER.search(path.name)):
            found[int(number[1])] = path
    return found
