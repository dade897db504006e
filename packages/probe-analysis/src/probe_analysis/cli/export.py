"""Run ``probe export DIR -o FOLDER``: write a dump as tables of Parquet, curves for TensorBoard, or safetensors.

With ``--follow`` each step of a running job is written when it has ended.
"""

import argparse
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from probe_format.cli import Command, add_dump, add_part, shown
from probe_format.errors import UsageError
from probe_format.terminal import say, tell

from probe_analysis.export.export import FORMS, Exported, export, leftovers
from probe_analysis.export.follow import DumpFollower, nobody, standard_input
from probe_analysis.export.store import Store

from .options import part


def _run(arguments: argparse.Namespace) -> int:
    if arguments.follow:
        return _follow(arguments)
    how = {"form": arguments.to, "overwrite": arguments.overwrite, "filter": arguments.filter}
    with shown("export", "records") as progress:
        found = export(arguments.dir, arguments.output, **how, **part(arguments), progress=progress)
    say(*_story(found))
    for what, why in found.errors:
        tell(f"probe export: could not read {what}: {why}")
    for path in leftovers(found.path):
        tell(f"probe export: {path} is of an export that was killed (or runs now): delete it.")
    return 1 if found.errors else 0


def _follow(arguments: argparse.Namespace) -> int:
    if arguments.to != "parquet":
        how = f"For {arguments.to} run it without, when the job has ended."
        raise UsageError(f"--follow writes Parquet. {how}")
    if arguments.folder:
        os.nice(max(0, 10 - os.nice(0)))  # the run goes first
    dump, store = Path(arguments.dir).absolute(), Store(arguments.output)
    follower = DumpFollower(dump, store, arguments.folder, **part(arguments), filter=arguments.filter)
    return 0 if follower.follow(standard_input() if arguments.folder else nobody) else 1


def _options(parser: argparse.ArgumentParser) -> None:
    add_dump(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="the folder to make")
    parser.add_argument("--to", choices=FORMS, default="parquet", help="what to write (parquet)")
    add_part(parser)
    parser.add_argument("--filter", default="", metavar="TEXT", help="only records with TEXT in their name")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier export of this name")
    what = "beside a running job: write each step when it has ended, until Ctrl-C; FOLDER is any address of fsspec"
    parser.add_argument("--follow", action="store_true", help=what)
    parser.add_argument("--folder", help=argparse.SUPPRESS)


def _story(found: Exported) -> Iterator[str]:
    runs = "one rank of one step" if found.runs == 1 else f"{found.runs} runs (a rank of a step each)"
    others = "" if found.form == "safetensors" else f" and {found.arguments} other values"
    size = f"({found.bytes / 1e6:.1f} MB)"
    yield f"{found.path} holds {found.tensors} tensors{others} of {found.records} records, of {runs} {size}."
    if found.unsaved:
        yield f"{found.unsaved} more tensors of these records have no file in the dump."
    if found.watched:
        yield f"It has {found.watched} numbers of task watch."
    if found.left_out:
        yield f"The filter left out {found.left_out} records."
    if found.killed:
        more = ", ..." if len(found.killed) > 3 else ""
        yield f"Of a run that was killed, as far as its journal goes: {', '.join(found.killed[:3])}{more}."
    yield from found.lost
    if found.too_large:
        yield f"{found.too_large} numbers are larger than TensorBoard's float32 holds: they are infinite there."
    if found.form == "parquet":
        # As a pattern within quotes of SQL: the path may hold quotes, and what patterns are made of.
        path = re.sub(r"([\[*?])", r"[\1]", str(found.path)).replace("'", "''")
        table, where = ("tensors", "NOT finite ORDER BY step, rank, call_order")
        if not found.runs:
            table, where = ("watch", "NOT isfinite(norm) ORDER BY step, rank")
        query = f"FROM '{path}/{table}/**/*.parquet' WHERE {where}"
        within_quotes = re.sub(r'([$`"\\])', r"\\\1", query)
        yield f'  duckdb -c "{within_quotes}"'
    elif found.form == "tensorboard":
        yield f"  tensorboard --logdir {shlex.quote(str(found.path))}"


main = Command(
    "export",
    "Write a dump as tables of Parquet, curves over the steps for TensorBoard, or its tensors as safetensors.",
    _options,
    _run,
    "0 all of it is exported; 1 some of it could not be read and is named; 2 nothing is exported",
    finds=True,
)
