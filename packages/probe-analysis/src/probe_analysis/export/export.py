"""Export a dump: choose the runs, write each, and say what was written and what was left out."""

from pathlib import Path
from typing import Literal, get_args

from attrs import evolve, frozen
from probe_format import Dump
from probe_format.errors import FormatError, UsageError
from probe_format.safe_files import naming
from probe_format.watch import WatchFile, watch_files

from probe_analysis.calls.run import Progress, Run, Source, runs_of

from .count import Count
from .events import write_curves, write_watched_curves
from .output import mark, whole_folder
from .tables import GROUP, write_tables, write_watched

Form = Literal["parquet", "tensorboard"]
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
    """Write a dump, by Probe or by msprobe, as tables (spec/export.md) or as TensorBoard's curves.

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
    files = [] if filter else _watch_files(dump, step, rank)
    try:
        runs = sorted(runs_of(dump, step=step, rank=rank), key=_place)
    except FormatError:
        if not files:
            raise
        runs = []
    count = Count(filter, progress)
    with naming(to), whole_folder(Path(to), overwrite=overwrite) as folder:
        # With nothing read yet: what is read of a run goes with it, so that one is held at a time.
        fresh = (Run(run.label, evolve(run.rank)) for run in runs)
        if form == "parquet":
            write_tables(fresh, folder, count, group)
            write_watched(files, folder, count, group)
        else:
            write_curves(fresh, folder, count)
            write_watched_curves(files, folder, count)
        if count.amounts["runs"] == 0 and count.errors:
            raise FormatError(f"Nothing of {count.errors[0][0]} can be read: {count.errors[0][1]}")
        told = {"filter": filter, "killed": count.killed, "errors": count.errors}
        mark(folder, form, {**count.amounts, **told})
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
