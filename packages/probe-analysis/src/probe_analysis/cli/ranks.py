"""Run ``probe ranks DIR``: compare ranks where they should agree, and name the first place where they do not."""

import argparse
from collections.abc import Iterator

from probe_format.cli import Command, add_part, shown
from probe_format.errors import UsageError

from probe_analysis.ranks.disagreement import WHY, ranks_text
from probe_analysis.ranks.ranks import Ranks, ranks

from .options import add_engine, add_number, add_table, engine
from .output import show

_MOST = 1_000_000  #: ranks in a group; more is taken for a typing error
_CODES = {"agree": 0, "disagree": 1, "nothing compared": 2}


def _run(arguments: argparse.Namespace) -> int:
    groups = [_group(text) for text in arguments.groups]
    how = {"agree": arguments.agree, "tolerance": arguments.tolerance, "engine": engine(arguments)}
    with shown("ranks", "calls") as progress:
        found = ranks(arguments.dir, step=arguments.step, groups=groups, **how, progress=progress)
    every = [*found.rows()]
    rows = [*map(found.row, every[: arguments.rows])]  # of 10,000 ranks there are many
    show("ranks", found, arguments, _story(found), rows, "more, most of which follow", len(every))
    return _CODES[found.state]


def _options(parser: argparse.ArgumentParser) -> None:
    dump = "a dump_path or a step folder with several ranks, or the tables that probe export wrote"
    parser.add_argument("dir", help=dump)
    add_part(parser, rank="")
    groups = "which ranks are replicas, as '0,2 1,3' or '0-3 4-7'; found out from the weights without"
    parser.add_argument("--groups", nargs="+", default=[], metavar="RANKS", help=groups)
    agree = "further tensors that all ranks should agree on, as 'Module.norm.*.output.*'"
    parser.add_argument("--agree", nargs="+", default=[], metavar="PATTERN", help=agree)
    add_number(parser, "--tolerance", 0.0, "the relative difference up to which ranks agree (0)")
    add_engine(parser)
    add_table(parser)


def _group(text: str) -> list[int]:
    found: list[int] = []
    try:
        for part in text.split(","):
            low, dash, high = part.partition("-")
            some = range(int(low), int(high if dash else low) + 1)
            if not 0 < len(some) <= _MOST:
                raise ValueError
            found += some
    except (ValueError, OverflowError):
        raise UsageError(f"--groups wants ranks as 0,2 or 0-3, not {text!r}.") from None
    return found


def _story(found: Ranks) -> Iterator[str]:
    first = found.first
    if found.stopped is not None:
        yield f"stopped: {found.stopped.sentence}"
        yield from found.stopped.where
    yield found.sentence
    if first is not None:
        yield from first.where
        if first.odd:
            yield f"  the odd one out: {ranks_text(first.odd)}"
        else:
            yield "  no majority tells which of them is wrong"
    yield ""
    yield found.replicas.why
    yield "what should agree, and how often that was looked at:"
    for reason, why in WHY.items():
        apart = sum(each.reason == reason for each in found.disagreements)
        if found.checked.get(reason) or apart:
            count = f"{found.checked[reason]} tensors, " if found.checked.get(reason) else ""
            yield f"  {count}{apart} apart: {why}"
    yield "not blamed: data, activations and gradients before their reduction, which differ between data-parallel ranks"


main = Command(
    "ranks",
    "Compare the ranks of a dump where they should agree, and name the first place where they do not.",
    _options,
    _run,
    "0 the ranks agree; 1 they do not; 2 nothing was there to compare (one rank alone, no numbers)",
    finds=True,
)
