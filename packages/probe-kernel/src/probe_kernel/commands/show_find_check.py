"""Run the subcommands that only read: show, find, check."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from probe_format.terminal import say

from probe_kernel.trace.find_line import find, parse_line

from .command import Command, add_part, chosen, report, tried
from .display import hit_lines, is_bad, slot_line, times


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
            kernels = [kernel for kernel in kernels if any(map(is_bad, kernel.slots))]
        say(f"{iteration.label}: {len(kernels)} of {len(iteration.kernels)} kernels")
        for kernel in kernels:
            say(f"  {kernel.op_type}  {kernel.name}{times(kernel)}")
            if not arguments.brief:
                for slot in kernel.slots:
                    say(f"    {slot_line(slot)}")
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
        say(*hit_lines(hit, arguments.step))
    hidden = len(hits) - len(shown)
    if hidden:
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


SHOW = Command("show", "print the kernels with shapes and statistics", _show_arguments, _show)
FIND = Command(
    "find", "list the operators of a line of your script, with their files", _find_arguments, _find
)
CHECK = Command("check", "read every file and name those that are damaged or unknown", add_part, _check)
