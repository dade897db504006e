"""Run ``probe check DIR``: run recorded calls of functions again in float64, and say which results are wrong."""

import argparse
from collections.abc import Iterator

from probe_format.cli import Command, add_dump, add_part, shown

from probe_analysis.replay.check import Check, check

from .options import add_number, add_table, part
from .output import show


def _run(arguments: argparse.Namespace) -> int:
    with shown("check", "calls") as progress:
        memory = int(arguments.memory * 2**30)
        found = check(arguments.dir, **part(arguments), memory=memory, progress=progress)
    rows = [
        {"call": x.call.name, "slot": x.slot, "error": x.error.relative, "units": x.units, "limit": x.limit}
        for _, x in found.ranked
        if x.error is not None
    ]
    show("check", found, arguments, _story(found), rows, "more passes")
    return 0 if found.first is None else 1


def _options(parser: argparse.ArgumentParser) -> None:
    add_dump(parser)
    add_part(parser)
    add_number(parser, "--memory", 8.0, "GiB that one call may need; larger ones are counted (8)")
    add_table(parser)


def _story(found: Check) -> Iterator[str]:
    yield found.sentence
    if found.first is not None:
        yield from found.first[1].where
        yield f"  in {found.first[0].label}"
    wrong = sum(each.wrong for _, each in found.calls)
    yield ""
    yield f"{len(found.ranked)} passes of calls were replayed, {wrong} are wrong"
    for reason, count in found.reasons.items():
        yield f"  {count} not replayed: {reason}"


main = Command(
    "check",
    "Run the recorded calls of functions again in float64, and rank them by their error (task tensor).",
    _options,
    _run,
    "0 every call that was replayed is right; 1 one is wrong; 2 none can be replayed",
    finds=True,
)
