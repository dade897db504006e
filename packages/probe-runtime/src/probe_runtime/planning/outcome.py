"""Make a plan of what a step wrote into a folder of its own, whose tensor files were only counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve
from probe_format.excerpts import cut

from probe_runtime.config.config import Config

from .counted_files import CountedFiles, in_blocks
from .dump_plan import DumpPlan
from .obstacles import disk_free, obstacles


def outcome(
    config: Config,
    reports: Sequence[Mapping[str, Any]],
    folder: Path,
    files: CountedFiles,
    notes: Sequence[str],
) -> DumpPlan:
    """Return the plan that a step comes to.

    config: that of the dump which is planned.
    reports: of the step; two of a step that has a part for compiled graphs.
    folder: where it wrote its documents.
    files: its tensor files.
    notes: what to know about how it went.
    """
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    faults = [fault for report in reports for fault in report["faults"]]
    if faults:
        count, why = sum(fault["count"] for fault in faults), _said(faults[0]["message"])
        notes = [*notes, f"{count} calls could not be followed ({why}); the real dump may be larger."]
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
        allocated=files.allocated + in_blocks(sizes),
        free=disk_free(config.dump_path),
        steps=len(config.step) or None,
        ranks=len(config.rank) or None,
        largest=tuple(files.largest()),
        unmatched=_unmatched(reports),
        not_seen=tuple(
            dict.fromkeys((n["what"], n["why"]) for report in reports for n in report["not_seen"])
        ),
        notes=tuple(notes),
    )
    return evolve(found, problems=tuple(obstacles(found, config)))


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
