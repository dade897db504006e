"""Run the subcommands of ``probe kernel`` that write files: statistics (statistic.csv for dumps that have only
tensors), export (to dump.json) and convert (Ascend's bin files to npy, pt or raw files).
"""

import argparse
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from probe_format.cli import Command
from probe_format.errors import FormatError
from probe_format.safe_files import replace_file
from probe_format.suggest import did_you_mean
from probe_format.terminal import ProgressLine, say, tell

from probe_kernel.convert import TYPES, Conversion, bin_files, convert_all
from probe_kernel.export.export import export
from probe_kernel.files.dtypes import find_dtype
from probe_kernel.files.tensor_layouts import TARGETS
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


def _convert_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, help="a bin file, or a folder with some in it")
    add_out(parser, "where to write; files of an earlier conversion are replaced")
    parser.add_argument("--type", choices=TYPES, default="npy", help="what to write (npy)")
    layouts = f"convert to {', '.join(TARGETS)}; without it, every tensor stays as it lies on the device"
    parser.add_argument("--format", default="", metavar="LAYOUT", help=layouts)
    shape = "the tensor's own shape, if the file lacks it"
    parser.add_argument("--shape", default="", metavar="N,C,...", help=shape)
    only = "only this; again for more"
    parser.add_argument("--only", action="append", default=[], metavar="input.0", help=only)
    parser.add_argument("--workers", type=_count, metavar="N", help="threads (one for each core, at most 8)")


def _convert(arguments: argparse.Namespace) -> int:
    if arguments.format and arguments.format not in TARGETS:
        raise FormatError(f"--format {arguments.format}: unknown. {did_you_mean(arguments.format, TARGETS)}")
    shape = _shape(arguments.shape)
    if shape and not arguments.format:
        raise FormatError("--shape says what --format is to cut off: give a --format too.")
    files, faults = bin_files(arguments.source)
    if not files:
        what = f"{arguments.source} has no bin files (those whose names end with a timestamp)."
        raise FormatError(" ".join([what, *faults[:3]]))
    how = Conversion(arguments.type, arguments.format, shape, tuple(arguments.only))
    written = bad = 0
    line = ProgressLine(terminal=0.1, elsewhere=5.0)
    try:
        outcomes = convert_all(files, arguments.source, arguments.out, how, arguments.workers)
        for done, outcome in enumerate(outcomes, start=1):
            bad += bool(outcome.faults)
            written += len(outcome.written)
            faults += outcome.faults
            line.show(_progress(done, bad, len(files), bar=line.live), now=done == len(files))
        line.end()
    except KeyboardInterrupt:
        line.end()
        report(sorted(faults))
        tell(f"probe kernel convert: stopped; {written} files are in {arguments.out}.")
        return 130
    say(f"{arguments.out}: {written} files from {len(files)} bin files")
    return report(sorted(faults)) if written else report(sorted(faults)) and 1


def _progress(done: int, bad: int, total: int, *, bar: bool) -> str:
    faults = f", {bad} with faults" if bad else ""
    drawn = f"[{'#' * round(30 * done / total):<30}] " if bar else ""
    return f"{drawn}{done}/{total} files{faults}"


def _shape(text: str) -> tuple[int, ...]:
    if text and not re.fullmatch(r"[1-9]\d{0,18}(,[1-9]\d{0,18})*", text):
        raise FormatError(f"--shape {text}: whole numbers above 0 with commas, as 1,3,224,224.")
    return tuple(int(n) for n in text.split(",")) if text else ()


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of threads from 1 to 1024")
    return int(text)


STATISTICS = Command(
    "statistics", "write statistic.csv for dumps that have only tensors", _statistics_arguments, _statistics
)
EXPORT = Command("export", "write dump.json, for probe show and probe verify", _export_arguments, _export)
CONVERT = Command("convert", "turn Ascend's bin files into npy or pt files", _convert_arguments, _convert)
