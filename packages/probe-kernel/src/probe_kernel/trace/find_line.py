"""Find the operators of MindSpore's graphs that a line of the user's script became, and their dumped kernels."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen
from probe_format.errors import FormatError, UsageError
from probe_format.suggest import nearest

from probe_kernel.graph.ir_text import read_ir
from probe_kernel.graph.model import Frame, Graph, Operator, path_parts
from probe_kernel.read.dump import Dump, Rank
from probe_kernel.read.kernel import Kernel

from .match import How, match, stem

_LINE = re.compile(r"(?P<file>.+?):(?P<line>[1-9][0-9]{0,8})")


@frozen
class Line:
    """Locate a line of a script.

    file: a path, or the end of one.
    line: from 1.
    """

    file: str
    line: int


@frozen
class Hit:
    """Describe one operator of the line.

    rank, graph: where it is.
    kernels: its executions in every dumped iteration; empty where nothing of it was dumped.
    frame: the line itself, as the graph has it.
    how: what the files were matched by.
    shared: how many others of its type have all the same lines, so that the graph does not say which line is whose.
    cautions: what in the files contradicts the graph.
    near: names of files that could be its own, where the graph does not say whose they are.
    """

    rank: int | None
    graph: int
    operator: Operator
    frame: Frame | None
    kernels: tuple[Kernel, ...] = ()
    how: How | None = None
    shared: int = 0
    cautions: tuple[str, ...] = ()
    near: tuple[str, ...] = ()

    @property
    def runs_kernel(self) -> bool:
        """Return whether a kernel runs for the operator: Load, MakeTuple and the like are only in the graph."""
        return bool(self.kernels) or self.operator.is_kernel


def parse_line(text: str) -> Line:
    """Parse ``train.py:175``. Raises UsageError when it has another form."""
    found = _LINE.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is not a line of a script. Write it as train.py:175.")
    return Line(found["file"], int(found["line"]))


def find(dump: Dump, line: Line, graphs: Path | None = None) -> tuple[Hit, ...]:
    """Return the operators of a line, and their gradients (``operator.gradient``), by rank and in the graph's order.

    graphs: a folder with .ir files, for dumps without (Ascend O2: set_context(save_graphs=2)).

    Raises FormatError when there is no graph, or when no graph has the line; it names lines and scripts nearby.
    """
    hits: list[Hit] = []
    seen: list[Graph] = []
    bad: list[Exception] = []
    for rank in dump.ranks:
        for number, graph in _graphs(rank, graphs, bad):
            seen.append(graph)
            if operators := graph.at(line.file, line.line):
                hits += _hits(rank, number, graph, operators, line)
    if not seen and bad:
        raise bad[0]
    if not seen:
        raise FormatError(
            f"{dump.path} has no graph (rank_0/graphs/ms_output_trace_code_graph_0.ir): which kernels a line became "
            "is written nowhere else. For Ascend O2, run with set_context(save_graphs=2) and give that folder with "
            "--graphs."
        )
    if not hits:
        raise FormatError(_missed(line, seen))
    return tuple(hits)


def _graphs(rank: Rank, folder: Path | None, bad: list[Exception]) -> Iterator[tuple[int, Graph]]:
    """Yield the graphs that can be read; add the errors of others to ``bad`` (they are among the dump's problems)."""
    if folder is None:
        for number, lazy in rank.graphs.items():
            try:
                yield number, lazy.graph
            except (FormatError, OSError) as error:
                bad.append(error)
        return
    paths = sorted(folder.glob("**/*.ir")) if folder.is_dir() else [folder]
    # save_graphs leaves one file for each pass of the compiler: the last form is the one that runs.
    paths = [path for path in paths if "trace_code_graph" in path.name] or paths
    for number, path in enumerate(paths):
        digits = re.search(r"graph_(\d+)", path.name)
        yield int(digits[1]) if digits else number, read_ir(path)


def _hits(rank: Rank, number: int, graph: Graph, operators: Sequence[Operator], line: Line) -> Iterator[Hit]:
    kernels = [
        kernel
        for iteration in rank.iterations
        if iteration.folder.graph in (number, None) or not iteration.folder.in_rank
        for kernel in iteration.kernels
    ]
    names = match(graph.operators, kernels, rank.order.get(number, ()))
    of = {id(found.operator): found for found in names.values()}
    lost = dict.fromkeys(k.name for k in kernels if not k.is_parameter and k.name not in names)
    for operator in operators:
        place = rank.number, number, operator, operator.frame_at(line.file, line.line)
        shared = graph.shared(operator)
        if found := of.get(id(operator)):
            runs = tuple(k for k in kernels if k.name == found.name and not k.is_parameter)
            yield Hit(*place, runs, found.how, shared, found.cautions)
        else:  # names in the files that are the operator's, whole or its end, but for the number
            ends = (operator.full_name, operator.full_name.rpartition("/")[2])
            stems = {stem(end) for end in ends if end}
            yield Hit(*place, shared=shared, near=tuple(name for name in lost if stem(name) in stems))


def _missed(line: Line, graphs: Sequence[Graph]) -> str:
    files = tuple(dict.fromkeys(file for graph in graphs for file in graph.files))
    name = path_parts(line.file)[-1:]
    same = [file for file in files if path_parts(file)[-1:] == name]
    if not same:
        near = nearest("".join(name), [file.split("/")[-1] for file in files])
        where = f"Near: {', '.join(near)}." if near else f"They come from {', '.join(files[:5])}."
        return f"No operator of the {len(graphs)} graphs comes from {line.file}. {where}"
    frames = (frame for graph in graphs for operator in graph.operators for frame in operator.frames)
    lines = {frame.line: frame.text.strip() for frame in frames if frame.file in same}
    nearby = sorted(lines, key=lambda number: (abs(number - line.line), number))[:4]
    near_lines = "; ".join(f"{number}: {lines[number]}" for number in sorted(nearby))
    return (
        f"No operator comes from line {line.line} of {line.file}. Lines that became operators: {near_lines}. "
        "(A line that only names things, or that the compiler removed, becomes none.)"
    )
