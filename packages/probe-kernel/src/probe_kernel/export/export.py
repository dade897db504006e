"""Write a kernel dump as dump.json, stack.json and construct.json, for `probe show` and `probe_format.open`."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from probe_format.errors import FormatError, UsageError
from probe_format.layout import DUMP, TENSORS, rank_dir
from probe_format.names import Direction, ModuleName, tensor_file_name
from probe_format.write import FORMAT_VERSION, Coverage, Documents, write_documents

from probe_kernel.graph.model import Operator
from probe_kernel.output_folder import folder_in
from probe_kernel.read.dump import Dump, Rank
from probe_kernel.read.iteration import Iteration
from probe_kernel.read.kernel import TensorSlot
from probe_kernel.trace.match import match

from .tensor_json import head_json, tensor_json

_MOST_GAPS = 1024
_DEF = re.compile(r"\s*(?:async\s+)?def\s+(\w+)")


@frozen
class Exported:
    """Name one rank of one step that was written. faults: what of it could not be read, in sentences."""

    path: Path
    records: int
    tensors: int
    faults: tuple[str, ...] = ()


def export(dump: Dump, out: Path, *, tool: str, root: str = "", values: bool = True) -> Iterator[Exported]:
    """Write ``out/step<N>/rank<R>/`` for each step (or iteration) and rank; yield each when it is complete.

    out: the folder to write to.
    tool: name and version of the program that writes, for the header.
    root: the Cell of Probe's own dump, as ``network._backbone``; it and the Cells around it are left out, so that the
    names of the Cells are the same in both dumps.
    values: whether the tensors are written too (as links, where a file can stay as it is), and not their statistics
        alone.

    Raises UsageError when ``out`` has a dump already, OSError when it cannot be written.
    """
    for rank in dump.ranks:
        graphs = _graphs(rank)
        steps: dict[int, list[Iteration]] = {}
        for iteration in rank.iterations:
            steps.setdefault(iteration.folder.number or 0, []).append(iteration)
        for step, iterations in steps.items():
            folder = rank_dir(out, step, rank.number)
            if os.path.lexists(folder / DUMP):
                raise UsageError(f"{folder} holds a dump already. Give an empty folder with -o.")
            folder_in(out, (folder / TENSORS if values else folder).relative_to(out))
            draft = _StepDraft(folder, tool, root, values)
            several = len({(i.folder.net, i.folder.graph) for i in iterations}) > 1
            for iteration in iterations:
                draft.add(iteration, graphs.get(iteration.folder.graph, {}), several)
            yield draft.write()


Known = Mapping[str, tuple[Operator, str]]
"""Kernel name -> its operator, and the full name that tells its Cells."""


def _graphs(rank: Rank) -> dict[int | None, Known]:
    """Return what is known of each graph's kernels. A graph that cannot be read gives no parents and no lines."""
    found: dict[int | None, Known] = {}
    for number, lazy in rank.graphs.items():
        kernels = [k for i in rank.iterations if i.folder.graph == number for k in i.kernels]
        try:
            graph = lazy.graph
            names = match(graph.operators, kernels, rank.order.get(number, ()))
        except (FormatError, OSError):
            continue
        found[number] = {name: (one.operator, graph.scope_of(one.operator)) for name, one in names.items()}
    return found


@define
class _StepDraft:
    folder: Path
    tool: str
    root: str
    values: bool
    data: dict[str, Any] = field(factory=dict)
    construct: dict[str, str | None] = field(factory=dict)
    frames: dict[tuple[str, ...], list[str]] = field(factory=dict)
    coverage: Coverage = field(factory=Coverage)
    faults: list[str] = field(factory=list)
    framework: str = "mindspore"
    tensors: int = 0

    def add(self, iteration: Iteration, operators: Known, several: bool) -> None:
        """Add the kernels of a folder. several: the step has several graphs, so names begin with the graph."""
        self.framework = "pytorch" if iteration.folder.layout == "torch" else "mindspore"
        self.faults += iteration.problems
        graph = iteration.folder.graph
        prefix = f"graph{graph}." if several and graph is not None else ""
        for kernel in iteration.kernels:
            operator, scope = operators.get(kernel.name, (None, ""))
            gradient = operator.gradient if operator else kernel.name.startswith("Gradients_")
            direction: Direction = "backward" if gradient else "forward"
            name = f"Kernel.{prefix}{kernel.op_type}.{kernel.name}.{kernel.count}.{direction}"
            while name in self.data:  # two nets, or two streams, have a kernel of the same name
                name = name.replace("Kernel.", "Kernel.other.", 1)
            inputs, outputs = self._side(name, kernel.inputs), self._side(name, kernel.outputs)
            given = {"input": inputs} if gradient else {"input_args": inputs, "input_kwargs": {}}
            self.data[name] = {**given, "output": outputs}
            self.construct[name] = self._parent(scope, direction)
            if operator is not None and operator.frames:
                self.frames.setdefault(tuple(_stack_of(operator)), []).append(name)
            self.coverage.add("seen", "kernels")
            self.coverage.add("recorded", "kernels")

    def _side(self, record: str, slots: tuple[TensorSlot, ...]) -> list[Any]:
        """Return the tensors at their index, null where nothing was dumped; none behind an absurd gap."""
        out: list[Any] = []
        for at, slot in enumerate(slots):
            if slot.index > at + _MOST_GAPS:
                what = f"is left out: over {_MOST_GAPS} slots before it are empty."
                self.faults.append(f"{slot.kernel.name} {slot} {what}")
                self.coverage.add("failed", "tensor files")
            else:
                out += [None] * (slot.index - len(out))
                out.append(self._tensor(record, slot))
        return out

    def _tensor(self, record: str, slot: TensorSlot) -> dict[str, Any]:
        self.tensors += 1
        self.coverage.add("recorded", "tensors")
        name = tensor_file_name(record, slot.io, [slot.index], "npy")
        try:
            return tensor_json(slot, self.framework, self.folder / TENSORS / name if self.values else None)
        except (FormatError, OSError) as error:
            self.faults.append(str(error))
            self.coverage.add("failed", "tensor files")
            return {**head_json(slot.dtype or "unknown", (), self.framework), "unsupported": str(error)}

    def _parent(self, scope: str, direction: Direction) -> str | None:
        parent = None
        for node in cells_of(scope, direction, self.root):
            self.construct.setdefault(node, parent)
            parent = node
        return parent

    def write(self) -> Exported:
        header = {
            "task": "tensor" if self.values else "statistics",
            "level": "L2",
            "framework": self.framework,
            "dump_data_dir": str((self.folder / TENSORS).absolute()) if self.values else None,
            "format_version": FORMAT_VERSION,
            "tool": self.tool,
        }
        stack = {str(i): [names, list(frames)] for i, (frames, names) in enumerate(self.frames.items())}
        faults = [{"where": "kernel dump", "message": fault, "count": 1} for fault in self.faults]
        documents = Documents(header, self.data, stack, self.construct, self.coverage.json(), faults)
        write_documents(self.folder, documents, state="complete", journal_bytes=None)
        return Exported(self.folder, len(self.data), self.tensors, tuple(self.faults))


def cells_of(full_name: str, direction: Direction, root: str = "") -> Iterator[str]:
    """Yield the nodes of the Cells around an operator, outermost first, from its scope.

    ``Default/network-WithLossCell/conv1-Conv2d/Conv2D-op0`` is in ``Cell.network.WithLossCell.forward.0`` and
    ``Cell.network.conv1.Conv2d.forward.0``. The scope does not contain the call's number, so it is always 0.

    root: the Cell that is left out with those around it; empty to keep all.
    """
    path: list[str] = []
    left_out = f"{root}." if root else ""
    for scope in full_name.split("/")[:-1]:
        name, dash, cls = scope.rpartition("-")
        if not dash or not name or not cls.isidentifier():
            continue
        path.append(name)
        whole = ".".join(path)
        if whole.startswith(left_out):
            yield str(ModuleName("Cell", whole.removeprefix(left_out), cls, direction, 0))


def _stack_of(operator: Operator) -> Iterator[str]:
    """Return the lines as in stack.json, innermost first."""
    function = "<module>"
    out = []
    for frame in operator.frames:
        if found := _DEF.match(frame.text):
            function = found[1]
        elif not frame.text.lstrip().startswith("@"):
            out.append(f"File {frame.file}, line {frame.line}, in {function}, \n {frame.text.strip()}")
    return reversed(out)
