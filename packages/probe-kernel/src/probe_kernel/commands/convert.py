"""Run the subcommand convert: turn bin files into files that numpy or torch reads."""

import argparse
import re
from pathlib import Path

from probe_format.cli import Command
from probe_format.errors import FormatError
from probe_format.suggest import did_you_mean
from probe_format.terminal import ProgressLine, say, tell

from probe_kernel.convert.convert_file import TYPES, Conversion, bin_files
from probe_kernel.convert.convert_many import convert_all
from probe_kernel.files.tensor_layouts import TARGETS

from .command import add_out, report


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


CONVERT = Command("convert", "turn Ascend's bin files into npy or pt files", _convert_arguments, _convert)
