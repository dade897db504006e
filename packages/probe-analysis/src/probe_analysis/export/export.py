"""Export a dump as tables, TensorBoard's curves or safetensors, into a folder that is whole or not there.

`Exported` says how much was written, what was left out, and what could not be read.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from attrs import evolve, frozen
from probe_format import Dump
from probe_format.errors import FormatError, UsageError
from probe_format.safe_files import naming
from probe_format.watch import WatchFile, watch_files

from probe_analysis.calls.run import Progress, Run, Source, runs_of

from .columns import SCHEMA_VERSION
from .events import write_curves, write_watched_curves
from .rows import ExportCount
from .tables import GROUP, write_tables, write_watched
from .tensor_values import write_values

Form = Literal["parquet", "tensorboard", "safetensors"]
FORMS: tuple[Form, ...] = get_args(Form)
"""What a dump can be exported to."""


@frozen
class Exported:
    """Say what an export wrote.

    path: the folder.
    runs, records, tensors, arguments: how many are in it.
    left_out: how many records the filter left out.
    too_large: how many numbers TensorBoard's float32 does not hold, which are infinite there.
    watched: how many numbers are of task `watch`.
    unsaved: how many tensors have no file in the dump, where values are exported.
    killed: the labels of runs that were killed, whose records come from their journals.
    lost: what is lost in each run that lacks something.
    errors: (label or record, why) of what could not be read, or not wholly.
    bytes: the size of all its files.
    """

    path: Path
    form: Form
    runs: int
    records: int
    tensors: int
    arguments: int
    left_out: int
    too_large: int
    watched: int
    unsaved: int
    killed: tuple[str, ...]
    lost: tuple[str, ...]
    errors: tuple[tuple[str, str], ...]
    bytes: int


def export(
    dump: Source,
    to: str | Path,
    *,
    form: Form = "parquet",
    step: int | None = None,
    rank: int | None = None,
    filter: str = "",
    overwrite: bool = False,
    group: int = GROUP,
    progress: Progress | None = None,
) -> Exported:
    """Write a dump, by Probe or by msprobe, as tables (spec/export.md), TensorBoard's curves, or safetensors.

    to: the folder to make. It appears under its name when it is complete.
    step, rank: only these; None for all.
    filter: only records with this text in their names.
    overwrite: replace an earlier export.
    group: how many rows of a table are held in memory, and written together.
    progress: called with (label, records written, records in all).
    Raises FormatError when nothing can be read, UsageError when something is in the way, and ProbeError when the
    package that writes the form is not installed.
    """
    if form not in FORMS:
        raise UsageError(f"export writes {' or '.join(FORMS)}, not {form!r}.")
    if group < 1:
        raise UsageError(f"A group has at least one row, not {group}.")
    if "://" in str(to):
        raise UsageError(f"{to} is no folder: with --follow, steps are written to any address as they end.")
    files = [] if filter else _watch_files(dump, step, rank)
    try:
        runs = sorted(runs_of(dump, step=step, rank=rank), key=_place)
    except FormatError:
        if not files:
            raise
        runs = []
    count = ExportCount(filter, progress)
    with naming(to), _whole_folder(Path(to), overwrite=overwrite) as folder:
        # Copies, made one by one: what is read of a run goes with its copy, so that one run is held at a time.
        fresh = (Run(run.label, evolve(run.rank)) for run in runs)
        if form == "parquet":
            write_tables(fresh, folder, count, group)
            write_watched(files, folder, count, group)
        elif form == "safetensors":
            write_values(fresh, folder, count)
        else:
            write_curves(fresh, folder, count)
            write_watched_curves(files, folder, count)
        if count.amounts["runs"] == 0 and count.errors:
            raise FormatError(f"Nothing of {count.errors[0][0]} can be read: {count.errors[0][1]}")
        told = {"filter": filter, "killed": count.killed, "errors": count.errors}
        document = {"schema_version": SCHEMA_VERSION, "form": form, **count.amounts, **told}
        (folder / MARKER).write_text(json.dumps(document, indent=1) + "\n", "utf-8")
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    killed, lost, errors = tuple(count.killed), tuple(count.lost), tuple(count.errors)
    return Exported(Path(to), form, killed=killed, lost=lost, errors=errors, bytes=size, **count.amounts)


def _watch_files(dump: Source, step: int | None, rank: int | None) -> list[WatchFile]:
    """Return what task `watch` left; with a step, only its rows. Of an open dump, nothing."""
    files = [] if isinstance(dump, Dump) else watch_files(dump)
    files = [file for file in files if rank in (None, file.rank)]
    for file in files:
        file.rows = [row for row in file.rows if step in (None, row.step)]
    return [file for file in files if file.rows]


def _place(run: Run) -> tuple[str, str, int]:
    """Return a key that puts the steps of one process together, in order."""
    return run.rank.mode or "", run.rank.path.name, -1 if run.rank.step is None else run.rank.step


MARKER = "_probe_export.json"
"""The file that says that a folder is an export. Engines pass over names that begin with ``_``."""


@contextlib.contextmanager
def _whole_folder(to: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder beside ``to`` that becomes ``to`` in the end; what fails leaves ``to`` as it was.

    overwrite: replace an earlier export. Nothing else is ever replaced.
    Raises UsageError when something is in the way.
    """
    to = Path(os.path.realpath(to))
    _check(to, overwrite=overwrite)
    to.parent.mkdir(parents=True, exist_ok=True)
    temporary = to.with_name(f".{to.name[:200]}.{os.urandom(4).hex()}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        _replace(temporary, to)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def leftovers(to: Path) -> list[Path]:
    """Return what exports of this name left beside it when they were killed, or are writing just now."""
    to = Path(os.path.realpath(to))
    form = re.compile(rf"\.{re.escape(to.name[:200])}\.[0-9a-f]{{8}}\.(?:tmp|old)")
    if not to.parent.is_dir():
        return []
    return sorted(path for path in to.parent.iterdir() if form.fullmatch(path.name) and path.is_dir())


def _check(to: Path, *, overwrite: bool) -> None:
    if not os.path.lexists(to) or (to.is_dir() and not any(to.iterdir())):
        return
    if not (to / MARKER).is_file():
        raise UsageError(f"{to} is there already and is no export, so it is not replaced. Give another name.")
    if not overwrite:
        raise UsageError(f"{to} holds an export already. Give another name, or --overwrite to replace it.")


def _replace(temporary: Path, to: Path) -> None:
    if not os.path.lexists(to) or not any(to.iterdir()):
        os.rename(temporary, to)
        return
    earlier = temporary.with_name(temporary.name.removesuffix(".tmp") + ".old")
    os.rename(to, earlier)
    try:
        os.rename(temporary, to)
    except OSError:
        os.rename(earlier, to)
        raise
    shutil.rmtree(earlier, ignore_errors=True)
