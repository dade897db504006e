"""Check the configuration to plan for, and make the plan from a trial step, whose tensor files were only counted."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve
from probe_format.errors import UsageError
from probe_format.excerpts import cut

from probe_runtime.config.config import Config
from probe_runtime.config.config_file import load
from probe_runtime.config.cross_checks import earlier_dump, earlier_ranks
from probe_runtime.config.keys import CALL_LEVELS
from probe_runtime.config.resolve import resolve
from probe_runtime.describe.tensor_store import OwnFiles, PackedFiles
from probe_runtime.watch.budget import free_bytes, in_blocks

from .counted_files import CountedFiles
from .dump_plan import DumpPlan, size_text


def wanted(config: Config | Mapping[str, Any] | str | Path, *, collecting: bool) -> Config:
    """Return the configuration to plan for.

    config: the path of a configuration, its keys as a dict, or a Config.
    collecting: whether a dump is being made at the moment.

    Raises ConfigError when it is wrong; UsageError where its level records no calls, and while a dump is made.
    """
    if not isinstance(config, Config):
        config = resolve(load(str(config)) if isinstance(config, (str, Path)) else config)
    if config.level not in CALL_LEVELS:
        raise UsageError(f"Levels L0, L1 and mix can be planned; this configuration's is {config.level}.")
    if collecting:
        raise UsageError("A dump is being made here. Plan before start(), or after stop().")
    return config


def outcome(
    config: Config,
    reports: Sequence[Mapping[str, Any]],
    folder: Path,
    files: CountedFiles,
    notes: Sequence[str],
) -> DumpPlan:
    """Return the plan, from what the trial step wrote.

    config: the configuration of the planned dump.
    reports: the reports of the step; two where it has a part for compiled graphs.
    folder: where the step wrote its documents.
    files: the step's tensor files.
    notes: what to know about how the step went.
    """
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    faults = [fault for report in reports for fault in report["faults"]]
    if faults:
        count, why = sum(fault["count"] for fault in faults), _said(faults[0]["message"])
        notes = [*notes, f"{count} calls could not be followed ({why}); the real dump may be larger."]
    notes = [*notes, *_after_triggers(config)]
    store = PackedFiles if config.tensor_files == "packed" else OwnFiles
    found = DumpPlan(
        level=config.level,
        task=config.task,
        records=sum(report["records"] for report in reports),
        tensors=sum(report["counts"]["recorded"].get("tensors", 0) for report in reports),
        documents=len(sizes),
        document_bytes=sum(sizes),
        files=files.names,
        written=files.written,
        file_bytes=files.bytes,
        file_bytes_unshared=files.bytes_of_all_names,
        allocated=files.allocated(store.block) + sum(map(in_blocks, sizes)),
        free=_disk_free(config.dump_path),
        steps=_steps(config),
        ranks=len(config.rank) or None,
        largest=tuple(files.largest()),
        unmatched=_unmatched(reports),
        not_seen=tuple(
            dict.fromkeys((n["what"], n["why"]) for report in reports for n in report["not_seen"])
        ),
        notes=tuple(notes),
    )
    return evolve(found, problems=tuple(_obstacles(found, config)))


def _steps(config: Config) -> int | None:
    """Return how many steps are on the disk at once, None where nothing limits that."""
    named = len(config.step) or None
    times = config.then.times if config.then else 1
    held = None if config.keep is None else config.keep.last * (1 + times * bool(config.when)) + 1
    return min(filter(None, (named, held)), default=None)


def _after_triggers(config: Config) -> Iterator[str]:
    """Yield a note on the steps that triggers add, which are not in the plan."""
    then = config.then
    if then is not None and then.raises:
        most = then.steps * then.times
        how = f"level {then.level or config.level}, task {then.task or config.task}"
        yield (
            f"then: up to {most} step{'s' * (most > 1)} more, at {how}, stay after triggers. They are not in these "
            "sizes; plan them with that level and task."
        )


def _said(traceback: str) -> str:
    """Return the line of a traceback that names the error; what a framework adds may come after it."""
    lines = traceback.strip().splitlines()
    return cut(next((s for s in reversed(lines) if s[:1].isalpha() and ": " in s), "".join(lines[-1:])), 200)


def _unmatched(reports: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return the entries that match in no part of the step."""
    first, *others = [
        {(u["filter"], u["value"]): tuple(u["nearest"]) for u in r["unmatched"]} for r in reports
    ]
    return tuple((*entry, near) for entry, near in first.items() if all(entry in other for other in others))


def _disk_free(path: Path) -> int | None:
    try:
        return free_bytes(path)
    except OSError:
        return None


def _obstacles(plan: DumpPlan, config: Config) -> Iterator[str]:
    """Yield a sentence for each thing that would stop this dump or spoil it. Nothing is written to find them."""
    yield from _place(config)
    if plan.free is not None and plan.allocated > plan.free:
        yield (
            f"dump_path {config.dump_path}: one step of one rank takes {size_text(plan.allocated)}, and "
            f"{size_text(plan.free)} are free. Record less (list, scope, data_mode, task statistics), or choose "
            "another dump_path."
        )
    elif plan.free is not None and plan.total is not None and plan.total > plan.free:
        fit = plan.free // plan.allocated
        yield (
            f"dump_path {config.dump_path}: {_times(plan)} take {size_text(plan.total)}, and "
            f"{size_text(plan.free)} are free: enough for {fit}. Choose fewer steps or ranks, or another dump_path."
        )
    for which, value, nearest in plan.unmatched:
        near = ", ".join(nearest) or "no similar name"
        yield f"{which} entry {value!r} matches nothing. Nearest: {near}."


def _place(config: Config) -> Iterator[str]:
    path = config.dump_path
    try:
        there = _nearest(path)
        if not there.is_dir():
            yield f"dump_path {path}: {there} is a file, not a directory. Remove it, or choose another dump_path."
        elif not os.access(there, os.W_OK | os.X_OK):
            yield f"dump_path {path}: no permission to write below {there}. Choose another dump_path."
        elif not config.overwrite and (found := earlier_ranks(config, config.rank or (None,))):
            yield str(earlier_dump(path, found))
    except OSError as e:
        yield f"dump_path {path}: {e.strerror}. Choose another dump_path."


def _nearest(path: Path) -> Path:
    """Return the path, or the nearest folder above it that is there."""
    return next(p for p in (path, *path.parents) if p.exists())


def _times(plan: DumpPlan) -> str:
    return " of ".join(
        f"{n} {what}{'s' * (n > 1)}" for n, what in ((plan.steps or 1, "step"), (plan.ranks or 1, "rank"))
    )
