"""Run the subcommands of ``probe kernel`` that only read: show a dump's kernels, find a script line's operators,
check that every file can be read, and print what of a control file counts (config).
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from probe_format.cli import Command
from probe_format.errors import FormatError, UsageError
from probe_format.terminal import say

from probe_kernel.control.backends import BACKENDS
from probe_kernel.control.control_file import document_of, load_settings, settings_text
from probe_kernel.control.option_rules import check
from probe_kernel.graph.model import Type
from probe_kernel.read.kernel import Kernel, TensorSlot
from probe_kernel.read.statistics import NOT_FINITE, Value
from probe_kernel.trace.find_line import Hit, find, parse_line

from .command import add_part, chosen, report, tried


def _times(kernel: Kernel) -> str:
    return f"  (execution {kernel.count})" if kernel.count else ""


def _slot_line(slot: TensorSlot) -> str:
    try:
        shape = "?" if slot.shape is None else ",".join(map(str, slot.shape))
        found: Mapping[str, Value] = slot.statistics
    except (FormatError, OSError) as error:
        return f"{slot!s:<10} {slot.dtype}: {error}"
    words = [f"{key} {_number(found[key])}" for key in ("max", "min", "avg", "l2norm") if key in found]
    words += [f"{key} {found[key]}" for key in NOT_FINITE if found.get(key)]
    return f"{slot!s:<10} {f'{slot.dtype}[{shape}]':<24} {slot.format:<14} {'  '.join(words)}".rstrip()


def _number(value: Value) -> str:
    return "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _hit_lines(hit: Hit, step: int | None = None) -> Iterator[str]:
    operator = hit.operator
    what = "  (gradient)" if operator.gradient else ""
    rank = "" if hit.rank is None else f"rank {hit.rank}, "
    yield f"{rank}graph {hit.graph}: {operator.op}  {operator.full_name}{what}"
    yield f"  in   {_types(operator.inputs)}"
    yield f"  out  {_types(operator.outputs)}"
    if operator.is_kernel and any(t.format not in ("", "DefaultFormat") for t in operator.device_outputs):
        yield f"  on the device: in {_types(operator.device_inputs)}, out {_types(operator.device_outputs)}"
    if hit.shared:
        yield (
            f"  (the graph has this line for {hit.shared + 1} {operator.op} operators: MindSpore keeps one line for "
            "all calls of a Cell or function. Tell them apart by their order and shapes)"
        )
    if hit.how == "order":
        yield "  (the number in its files' names is another: matched by name without number, types and order)"
    if hit.cautions:
        yield f"  (matched by its name alone, take care: {'; '.join(hit.cautions)})"
    if hit.near:
        more = f" and {len(hit.near) - 5} more" if len(hit.near) > 5 else ""
        yield (
            f"  nothing is surely its own; these files have its name but for the number, or another size: "
            f"{', '.join(hit.near[:5])}{more}"
        )
    elif not hit.kernels:
        yield "  nothing of it was dumped"
    for kernel in hit.kernels:
        if step in (None, kernel.folder.number):
            yield f"  {kernel.folder.label}{_times(kernel)}: {kernel.name}"
            yield from _slot_lines(kernel)


def _slot_lines(kernel: Kernel) -> Iterator[str]:
    for slot in kernel.slots:
        yield f"    {_slot_line(slot)}"
        if slot.file is not None:
            yield f"      {slot.file}"


def _types(types: Sequence[Type]) -> str:
    return ", ".join(_type(one) for one in types) or "nothing"


def _type(one: Type) -> str:
    shape = "" if one.shape is None else f"[{','.join(map(str, one.shape))}]"
    layout = f" {one.format}" if one.format and one.format != "DefaultFormat" else ""
    return f"{one.dtype}{shape}{layout}" if one.dtype else one.text.strip("<>")


def _is_bad(slot: TensorSlot) -> bool:
    try:
        found = slot.statistics
    except (FormatError, OSError):
        return True  # its content is unknown, so the user should look
    return any(map(found.get, NOT_FINITE))


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    add_part(parser)
    parser.add_argument("--filter", default="", metavar="TEXT", help="only kernels with TEXT in type or name")
    parser.add_argument("--brief", action="store_true", help="names without their tensors")
    bad = "only kernels that hold something not finite, or that cannot be read"
    parser.add_argument("--bad", action="store_true", help=bad)


def _show(arguments: argparse.Namespace) -> int:
    _, iterations, problems = chosen(arguments)
    for iteration in iterations:
        text = arguments.filter
        kernels = [k for k in iteration.kernels if text in k.op_type or text in k.name]
        if arguments.bad:
            kernels = [kernel for kernel in kernels if any(map(_is_bad, kernel.slots))]
        say(f"{iteration.label}: {len(kernels)} of {len(iteration.kernels)} kernels")
        for kernel in kernels:
            say(f"  {kernel.op_type}  {kernel.name}{_times(kernel)}")
            if not arguments.brief:
                for slot in kernel.slots:
                    say(f"    {_slot_line(slot)}")
                    tried(partial(getattr, slot, "statistics"), problems)
        for overflow in tried(partial(getattr, iteration, "overflows"), problems) or ():
            say(f"  overflow: {overflow.path.name}, tasks (task, stream): {list(overflow.tasks)}")
    return report(problems)


def _find_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("line", metavar="SCRIPT:LINE", help="a line of your script, as train.py:175")
    add_part(parser)
    parser.add_argument("--graphs", type=Path, metavar="DIR", help=".ir files from elsewhere (Ascend O2)")
    parser.add_argument("--all", action="store_true", help="also nodes that no kernel is run for")


def _find(arguments: argparse.Namespace) -> int:
    dump, _, problems = chosen(arguments)
    hits = find(dump, parse_line(arguments.line), arguments.graphs)
    shown = [hit for hit in hits if arguments.rank in (None, hit.rank) and (arguments.all or hit.runs_kernel)]
    frame = next((hit.frame for hit in hits if hit.frame), None)
    if frame is not None:
        say(f"{frame.file}:{arguments.line.rpartition(':')[2]}: {frame.text.strip()}")
    for hit in shown:
        say(*_hit_lines(hit, arguments.step))
    if hidden := len(hits) - len(shown):
        say(f"({hidden} more nodes that no kernel is run for, or of other ranks; --all shows them)")
    return report(problems)


def _check(arguments: argparse.Namespace) -> int:
    _, iterations, problems = chosen(arguments)
    for iteration in iterations:
        tensors = 0
        for kernel in iteration.kernels:
            tried(partial(getattr, kernel, "arguments"), problems)
            for slot in kernel.slots:
                if slot.part is not None:
                    tensors += 1
                    tried(slot.load, problems)
        tried(partial(getattr, iteration, "overflows"), problems)
        say(f"{iteration.label}: {len(iteration.kernels)} kernels, {tensors} tensor files")
    return report(problems)


_VARIABLE = "MINDSPORE_DUMP_CONFIG"


def _config_arguments(parser: argparse.ArgumentParser) -> None:
    what = f"the control file (data_dump.json); without it, the one that {_VARIABLE} names"
    parser.add_argument("file", type=Path, nargs="?", help=what)
    parser.add_argument("--backend", required=True, choices=BACKENDS, help="for which it is")


def _config(arguments: argparse.Namespace) -> int:
    path = arguments.file or os.environ.get(_VARIABLE)
    if not path:
        raise UsageError(f"Which file? Name it (probe kernel config data_dump.json), or set {_VARIABLE}.")
    found = load_settings(path, arguments.backend)
    values, _ = check(found.description, found.backend)
    text = settings_text(document_of(found.description, values, found.backend))
    say(f"{found.path}: {found.backend.title} reads it as", *text.splitlines())
    say(*(f"note: {note}" for note in found.notes))
    say(*(f"wrong: {why}" for why in found.refused))
    return int(bool(found.refused))


SHOW = Command("show", "print the kernels with shapes and statistics", _show_arguments, _show)
FIND = Command(
    "find", "list the operators of a line of your script, with their files", _find_arguments, _find
)
CHECK = Command("check", "read every file and name those that are damaged or unknown", add_part, _check)
CONFIG = Command(
    "config", "check a control file of MindSpore, and print what of it counts", _config_arguments, _config
)
