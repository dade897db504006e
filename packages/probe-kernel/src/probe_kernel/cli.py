"""The command ``probe kernel``: look at kernel dumps, find a script line's kernels, write statistics, export."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen
from probe_format.errors import FormatError, ProbeError
from probe_format.suggest import did_you_mean

from . import __version__
from .categories import check_categories
from .conversion import TYPES, Conversion, bin_files
from .converting import Progress, convert_all
from .display import hit_lines, is_bad, slot_line, times
from .export import export
from .find import find, parse_line
from .layouts import TARGETS
from .read import Dump, Iteration, open
from .statistic import STATISTIC, table_text
from .synthesis import NUMBERS, rows

__all__ = ["COMMANDS", "Command", "main"]

_EXIT = """\
exit codes: 0 done; 1 no kernel dump, no such line, or nothing to do; 3 done, but some files could not be
understood or read (each is named); 2 wrong arguments
"""


@frozen
class Command:
    """One subcommand. add: gives a parser its arguments. run: gives the exit code."""

    what: str
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``probe kernel``; gives its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except (ProbeError, OSError) as error:
        print(f"probe kernel {arguments.command}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="probe kernel",
        description="Look at kernel dumps by MindSpore and Ascend.",
        epilog=_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"probe-kernel {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.what, description=command.what.capitalize() + ".")
        sub.set_defaults(run=command.run)
        command.add(sub)
    return parser


def _folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, help="the folder given to the dumper, or any folder in it")
    parser.add_argument("--rank", type=int, metavar="N", help="only this rank or device")
    parser.add_argument("--step", type=int, metavar="N", help="only this step or iteration")


def _chosen(arguments: argparse.Namespace) -> tuple[Dump, list[Iteration]]:
    dump = open(arguments.dir)
    chosen = [
        iteration
        for rank in dump.ranks
        for iteration in rank.iterations
        if arguments.rank in (None, rank.number) and arguments.step in (None, iteration.place.number)
    ]
    if not chosen:
        there = "; ".join(iteration.label for iteration in list(dump.iterations)[:10])
        raise FormatError(f"{arguments.dir} has no such rank or step. It has: {there}.")
    return dump, chosen


def _report(problems: Sequence[str]) -> int:
    for problem in problems[:50]:
        print(f"probe kernel: {problem}", file=sys.stderr)
    if len(problems) > 50:
        print(f"probe kernel: ... and {len(problems) - 50} more.", file=sys.stderr)
    return 3 if problems else 0


# show


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    _folder(parser)
    parser.add_argument("--filter", default="", metavar="TEXT", help="only kernels with TEXT in type or name")
    parser.add_argument("--brief", action="store_true", help="names without their tensors")
    parser.add_argument("--bad", action="store_true", help="only kernels that hold something not finite")


def _show(arguments: argparse.Namespace) -> int:
    dump, chosen = _chosen(arguments)
    problems = list(dump.problems)
    for iteration in chosen:
        kernels = [
            k for k in iteration.kernels if arguments.filter in k.op_type or arguments.filter in k.name
        ]
        if arguments.bad:
            kernels = [kernel for kernel in kernels if any(map(is_bad, kernel.slots))]
        print(f"{iteration.label}: {len(kernels)} of {len(iteration.kernels)} kernels")
        for kernel in kernels:
            print(f"  {kernel.op_type}  {kernel.name}{times(kernel)}")
            if not arguments.brief:
                for slot in kernel.slots:
                    print(f"    {slot_line(slot)}")
        for overflow in iteration.overflows:
            print(f"  overflow: {overflow.path.name}, tasks (task, stream): {list(overflow.tasks)}")
    return _report(problems)


# find


def _find_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("line", metavar="SCRIPT:LINE", help="a line of your script, as train.py:175")
    _folder(parser)
    parser.add_argument("--graphs", type=Path, metavar="DIR", help=".ir files from elsewhere (Ascend O2)")
    parser.add_argument("--all", action="store_true", help="also nodes that no kernel is run for")


def _find(arguments: argparse.Namespace) -> int:
    dump, _ = _chosen(arguments)
    hits = find(dump, parse_line(arguments.line), arguments.graphs)
    shown = [hit for hit in hits if arguments.rank in (None, hit.rank) and (arguments.all or hit.runs_kernel)]
    frame = next((hit.frame for hit in hits if hit.frame), None)
    if frame is not None:
        print(f"{frame.file}:{arguments.line.rpartition(':')[2]}: {frame.text.strip()}")
    for hit in shown:
        for line in hit_lines(hit, arguments.step):
            print(line)
    hidden = len(hits) - len(shown)
    if hidden:
        print(f"({hidden} more nodes that no kernel is run for, or of other ranks; --all shows them)")
    return _report(list(dump.problems))


# statistics


def _statistics_arguments(parser: argparse.ArgumentParser) -> None:
    _folder(parser)
    parser.add_argument(
        "-o", "--out", type=Path, metavar="DIR", help="write there instead of beside the tensors"
    )
    parser.add_argument(
        "--category",
        action="append",
        metavar="NAME",
        help="max, min, l2norm, md5, ...; again for more (all but hashes)",
    )


def _statistics(arguments: argparse.Namespace) -> int:
    categories = check_categories(arguments.category) if arguments.category else NUMBERS
    dump, chosen = _chosen(arguments)
    problems = list(dump.problems)
    written = 0
    for iteration in chosen:
        folder = iteration.path
        if arguments.out is not None:
            folder = arguments.out / iteration.path.relative_to(arguments.dir.absolute())
        path = folder / STATISTIC
        if path.exists():
            print(f"{path} is there already and stays as it is.")
            continue
        lines: list[str] = []
        for kernel in iteration.kernels:
            try:
                lines += list(table_text(rows([kernel], categories), categories))[1:]
            except (FormatError, OSError) as error:
                problems.append(str(error))
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([next(table_text((), categories)), *lines]) + "\n")
        written += 1
        print(f"{path}: {len(lines)} tensors")
    return _report(problems) or (0 if written else 1)


# export


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, help="the folder given to the dumper, or any folder in it")
    parser.add_argument(
        "-o", "--out", type=Path, required=True, metavar="DIR", help="where to write step<N>/rank<R>"
    )
    parser.add_argument(
        "--root",
        default="",
        metavar="CELL",
        help="leave out this Cell and those around it, as network._backbone",
    )
    parser.add_argument("--statistics", action="store_true", help="without the tensors")


def _export(arguments: argparse.Namespace) -> int:
    faults: list[str] = []
    dump = open(arguments.dir)
    for done in export(dump, arguments.out, root=arguments.root, values=not arguments.statistics):
        print(f"{done.path}: {done.records} records, {done.tensors} tensors")
        faults += done.faults
    return _report(faults)


# convert


def _convert_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, help="a bin file, or a folder with some in it")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="where to write")
    parser.add_argument("--type", choices=TYPES, default="npy", help="what to write (npy)")
    parser.add_argument(
        "--format",
        default="",
        metavar="LAYOUT",
        help=f"convert to {', '.join(TARGETS)}; without it, every tensor stays as it lies on the device",
    )
    parser.add_argument(
        "--shape", default="", metavar="N,C,...", help="the tensor's own shape, if the file lacks it"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="input.0", help="only this; again for more"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="threads (one for each core)")


def _convert(arguments: argparse.Namespace) -> int:
    if arguments.format and arguments.format not in TARGETS:
        raise FormatError(f"--format {arguments.format}: unknown. {did_you_mean(arguments.format, TARGETS)}")
    try:
        shape = tuple(int(n) for n in arguments.shape.split(",")) if arguments.shape else ()
    except ValueError:
        raise FormatError(f"--shape {arguments.shape}: whole numbers with commas, as 1,3,224,224.") from None
    files = list(bin_files(arguments.source))
    if not files:
        raise FormatError(f"{arguments.source} has no bin files (those whose names end with a timestamp).")
    how = Conversion(arguments.type, arguments.format, shape, tuple(arguments.only))
    faults: list[str] = []
    written = 0
    progress = Progress(len(files))
    for outcome in convert_all(files, arguments.source, arguments.out, how, arguments.workers):
        progress.step(outcome)
        written += len(outcome.written)
        faults += outcome.faults
    print(f"{arguments.out}: {written} files from {len(files)} bin files")
    return _report(faults) if written else _report(faults) and 1


# check


def _check(arguments: argparse.Namespace) -> int:
    dump, chosen = _chosen(arguments)
    problems = list(dump.problems)
    for iteration in chosen:
        tensors = 0
        for kernel in iteration.kernels:
            for slot in kernel.slots:
                if slot.part is not None:
                    tensors += 1
                    try:
                        slot.load()
                    except (FormatError, OSError) as error:
                        problems.append(str(error))
        print(f"{iteration.label}: {len(iteration.kernels)} kernels, {tensors} tensor files")
    return _report(problems)


COMMANDS: dict[str, Command] = {
    "show": Command("print the kernels with shapes and statistics", _show_arguments, _show),
    "find": Command("list the operators of a line of your script, with their files", _find_arguments, _find),
    "convert": Command("turn Ascend's bin files into npy or pt files", _convert_arguments, _convert),
    "check": Command("read every file and name those that are damaged or unknown", _folder, _check),
    "statistics": Command(
        "write statistic.csv for dumps that have only tensors", _statistics_arguments, _statistics
    ),
    "export": Command("write dump.json, for probe show and probe verify", _export_arguments, _export),
}
