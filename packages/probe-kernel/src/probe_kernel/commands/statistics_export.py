"""Run the subcommands that write files beside a dump: statistics, export."""

import argparse
import os
from collections.abc import Sequence
from functools import partial

from probe_format.cli import Command
from probe_format.safe_files import replace_file
from probe_format.terminal import say

from probe_kernel.export.export import export
from probe_kernel.files.dtypes import find_dtype
from probe_kernel.output_folder import folder_in
from probe_kernel.read.dump import open
from probe_kernel.read.kernel import TensorSlot
from probe_kernel.read.statistic_csv import STATISTIC
from probe_kernel.read.statistic_line import Row, table_text
from probe_kernel.read.statistics import NUMBERS, check_categories, numbers

from .command import add_folder, add_out, add_part, chosen, report, tried


def _statistics_arguments(parser: argparse.ArgumentParser) -> None:
    add_part(parser)
    add_out(parser, "write there instead of beside the tensors", required=False)
    category = "max, min, l2norm, md5, ...; again for more (all but hashes)"
    parser.add_argument("--category", action="append", metavar="NAME", help=category)


def _statistics(arguments: argparse.Namespace) -> int:
    categories = check_categories(arguments.category) if arguments.category else NUMBERS
    dump, iterations, problems = chosen(arguments)
    written = 0
    top = dump.path.parent if dump.path.is_file() else dump.path
    for iteration in iterations:
        folder = iteration.path
        if arguments.out is not None:
            folder = folder_in(arguments.out, iteration.path.relative_to(os.path.abspath(top)))
        path = folder / STATISTIC
        if os.path.lexists(path):
            say(f"{path} is there already and stays as it is.")
            continue
        slots = [slot for kernel in iteration.kernels for slot in kernel.slots if slot.part is not None]
        rows = [found for slot in slots if (found := tried(partial(_row, slot, categories), problems))]
        text = "\n".join(table_text(rows, categories)) + "\n"
        replace_file(path, os.fsencode(text))  # whole or not at all: a later run keeps the file
        written += 1
        say(f"{path}: {len(rows)} tensors")
    return report(problems) or (0 if written else 1)


def _row(slot: TensorSlot, categories: Sequence[str]) -> Row:
    kernel, array = slot.kernel, slot.load()
    # a bfloat16 has two bytes, though its file has four
    size = known.size(array.size) if (known := find_dtype(slot.dtype)) else array.nbytes
    place = (kernel.op_type, kernel.name, kernel.task, kernel.stream, slot.timestamp, slot.io, slot.index)
    dtype = slot.dtype.lower() or array.dtype.name
    return Row(*place, dtype, array.shape, size, slot.format, numbers(array, categories, slot.dtype))


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    add_out(parser, "where to write step<N>/rank<R>")
    root = "leave out this Cell and those around it, as network._backbone"
    parser.add_argument("--root", default="", metavar="CELL", help=root)
    parser.add_argument("--statistics", action="store_true", help="without the tensors")


def _export(arguments: argparse.Namespace) -> int:
    faults: list[str] = []
    dump = open(arguments.dir)
    values = not arguments.statistics
    for done in export(dump, arguments.out, tool=arguments.tool, root=arguments.root, values=values):
        say(f"{done.path}: {done.records} records, {done.tensors} tensors")
        faults += done.faults
    return report(faults)


STATISTICS = Command(
    "statistics", "write statistic.csv for dumps that have only tensors", _statistics_arguments, _statistics
)
EXPORT = Command("export", "write dump.json, for probe show and probe verify", _export_arguments, _export)
