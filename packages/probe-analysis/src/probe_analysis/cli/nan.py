"""Run ``probe nan DIR``: say which call makes the first value that is not finite, and which are close to overflow."""

import argparse
from collections.abc import Iterator

from probe_format.cli import Command, add_dump, add_part, shown
from probe_format.errors import FormatError

from probe_analysis.nonfinite.first import Finding, NonFinite, first_non_finite

from .options import add_engine, add_number, add_table, engine, part
from .output import show


def _run(arguments: argparse.Namespace) -> int:
    how = {"before": arguments.before, "factor": arguments.factor, "engine": engine(arguments)}
    with shown("nan") as progress:
        found = first_non_finite(arguments.dir, **part(arguments), **how, progress=progress)
    if found.first is None and not found.known:
        raise FormatError(found.sentence)
    show("nan", found, arguments, _story(found, arguments.rows))
    return 0 if found.first is None else 1


def _options(parser: argparse.ArgumentParser) -> None:
    add_dump(parser)
    add_part(parser)
    add_number(parser, "--before", 20, "calls before it to show (20)")
    add_number(parser, "--factor", 8.0, "how close to overflow a value is shown (8 times)")
    add_engine(parser)
    add_table(parser)


def _story(found: NonFinite, risks: int) -> Iterator[str]:
    first = found.first
    if first is None:
        yield found.sentence
    else:
        yield from _finding(first)
        other = found.backward if not first.call.backward else found.forward
        if other is not None:
            yield ""
            yield f"in the {'backward' if other.call.backward else 'forward'} pass: {other.sentence}"
        yield ""
        for label, count in found.counts.items():
            yield f"{label}: {count} records hold values that are not finite"
    if found.risks:
        yield ""
        yield f"close to the limits of their dtype: {len(found.risks)}"
        for risk in found.risks[:risks]:
            yield f"  {risk.run.label} {risk.sentence}"


def _finding(finding: Finding) -> Iterator[str]:
    yield f"{finding.run.label}: {finding.sentence}"
    yield from finding.where
    if finding.before:
        yield "the calls before it, and the range of what they returned:"
        for call, ranges in finding.led:
            yield f"  {call.name}  {ranges}"


main = Command(
    "nan",
    "Find the call that makes the first NaN or infinity, over all ranks.",
    _options,
    _run,
    "0 every value is finite; 1 one is not; 2 cannot be read, or has no numbers to tell by",
    finds=True,
)
