"""Find out what a kernel dump has written to its folder, and which requested kernels have no files and why."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen
from probe_format.errors import FormatError
from probe_format.suggest import nearest
from probe_runtime.config import compact

from probe_kernel.read.dump import ORDER_FILES, find_graph_files, read_order
from probe_kernel.read.file_name import flat, without_number
from probe_kernel.read.listing import read_mapping
from probe_kernel.read.statistic_csv import STATISTIC, read_table

from .kernel_patterns import KernelPattern


@frozen
class NeverRan:
    """Name a requested kernel without a file. why: a sentence with what to do."""

    kernel: str
    why: str

    def __str__(self) -> str:
        return f"{self.kernel!r}: {self.why}"


@frozen
class DumpOutcome:
    """Hold the result of a dump.

    path: the folder of one rank.
    files: how many data files there are.
    size: their bytes.
    iterations: those that were dumped.
    kernels: how many different ones.
    never_ran: the requested ones without a file.
    notes: other remarks, in sentences.
    """

    path: str
    files: int
    size: int
    iterations: tuple[int, ...]
    kernels: int
    never_ran: tuple[NeverRan, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = ", ".join(map(str, compact(self.iterations)))
        what = f"{self.files} files ({self.size / 1e6:.1f} MB) of {self.kernels} kernels in {self.path}"
        first = f"{what}; iterations {steps}." if steps else f"{what}."
        if not self.files:
            first = f"Nothing was written below {self.path}."
        return "\n".join([first, *(f"Nothing was written for {n}" for n in self.never_ran), *self.notes])


Seen = set[tuple[str, str]]
"""The types and names of the kernels that have files, as in the files' names."""


def inspect_dump(
    path: str | os.PathLike[str], requested: Sequence[KernelPattern] = (), notes: Sequence[str] = ()
) -> DumpOutcome:
    """Look through the folder of a dump.

    path: the folder of one rank. Folders named with a number are iterations where they hold data files.
    requested: the kernels that were asked for; empty for all.
    notes: remarks for the outcome.
    """
    files, size = 0, 0
    seen: Seen = set()
    iterations: set[int] = set()
    for folder, _, names in os.walk(path):
        if os.path.basename(folder) in ("graphs", "execution_order", ".dump_metadata"):
            continue
        here = [n for n in names if not n.endswith((".json", ".csv")) or n.startswith("Opdebug.")]
        if STATISTIC in names:
            seen.update((row.op_type, row.op_name) for row in read_table(Path(folder, STATISTIC)).rows)
            here.append(STATISTIC)
        if not here:
            continue
        old, _ = read_mapping(Path(folder))
        for name in here:
            files += 1
            size += os.path.getsize(os.path.join(folder, name))
            parts = old.get(name, name).split(".")
            if len(parts) > 4:
                seen.add((parts[0], parts[1]))
        if os.path.basename(folder).isdigit():
            iterations.add(int(os.path.basename(folder)))
    compiled = _execution_order(Path(path))
    lost = [pattern for pattern in requested if not _ran(pattern, compiled, seen)]
    missing = tuple(NeverRan(pattern.text, _why(pattern, compiled)) for pattern in lost)
    kernels = sum(kind != "Parameter" for kind, _ in seen)
    return DumpOutcome(str(path), files, size, tuple(sorted(iterations)), kernels, missing, tuple(notes))


def _why(pattern: KernelPattern, compiled: Sequence[str]) -> str:
    if meant := [n for n in compiled if pattern.matches(n)]:
        other = ""
        if pattern.kind == "name":  # seen: Cast-op3 in the graph's file ran as Cast-op0
            plain = without_number(pattern.text)
            any_number = pattern.text if plain == pattern.text else f"{plain}-op[0-9]+"
            other = f' Or the backend has given it another number: "name-regex({any_number})" takes any.'
        more = f" and {len(meant) - 1} more" if len(meant) > 1 else ""
        return (
            f"{meant[0]}{more} is in the graph, but it was not run in these iterations, "
            f"or has no tensor on the side that was asked for.{other}"
        )
    if pattern.kind == "regex":
        hint = f" It must match the whole name, such as {compiled[0]!r}." if compiled else ""
    else:
        lasts = [without_number(n.rpartition("/")[2]) for n in compiled]
        near = nearest(pattern.text, dict.fromkeys(lasts if pattern.kind == "type" else compiled), 3, 0.5)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"no operator of this name was compiled.{hint}"


def _ran(pattern: KernelPattern, compiled: Sequence[str], seen: Seen) -> bool:
    names = {name for _, name in seen}
    if pattern.kind == "name":
        return flat(pattern.text) in names
    # Where the backend rewrote a graph, the file's name has another number after -op.
    numberless = {without_number(n) for n in names}
    if any(pattern.matches(full) and without_number(flat(full)) in numberless for full in compiled):
        return True
    if pattern.kind == "type":
        wanted = pattern.text.lower()
        return any(
            wanted in without_number(name.rpartition("_")[2]).lower()
            or wanted in kind.lower()
            or (kind == "Parameter" and flat(wanted) in name.lower())
            for kind, name in seen
        )
    flattened = KernelPattern(pattern.text.replace("/", "_"), "regex")
    return any(flattened.matches(n) for n in names)


def _execution_order(rank: Path) -> list[str]:
    found: dict[str, None] = {}
    for path in find_graph_files(rank, ORDER_FILES).values():
        with contextlib.suppress(FormatError):  # left empty by a full disk: the names of the files remain
            found.update(dict.fromkeys(read_order(path)))
    return list(found)
