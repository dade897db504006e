"""Check and parse report.json: what a dump holds, what it lacks and why, and whether it is whole (spec/report.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import field, frozen

from probe_format.errors import FormatError, Problem
from probe_format.excerpts import brief

from .dump import parse_object

__all__ = ["STATES", "Report", "check_report", "parse_report", "report_of"]

STATES = ("open", "complete", "recovered")
_COUNTS = ("seen", "recorded", "filtered", "unsupported", "failed", "left_out")
_WHOLE = ("records", "tensors", "tensor_files")


@frozen
class Report:
    """Hold a parsed report.json; the fields are its keys.

    covered: how many bytes of the journal the JSON files hold, None when no journal was left.
    document: all of it, with the keys that have no field here.
    """

    state: str
    header: Mapping[str, Any] = field(factory=dict)
    files: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    covered: int | None = None
    counts: Mapping[str, Mapping[str, int]] = field(factory=dict)
    not_seen: tuple[Mapping[str, Any], ...] = ()
    faults: tuple[Mapping[str, Any], ...] = ()
    unmatched: tuple[Mapping[str, Any], ...] = ()
    records: int = 0
    tensors: int = 0
    tensor_files: int = 0
    norms: tuple[tuple[str, float], ...] = ()
    first_non_finite: Mapping[str, Any] | None = None
    started: str | None = None
    ended: str | None = None
    document: Mapping[str, Any] = field(factory=dict, repr=False)


def check_report(document: Any) -> Iterator[Problem]:
    """Yield every fault in a report.json, as schema/report.schema.json defines it."""
    if not isinstance(document, dict):
        yield Problem("report.json", "is not a JSON object.")
        return
    for key in ("format_version", "state", "header", "files", "journal", "counts", *_WHOLE):
        if key not in document:
            yield Problem(key, "is missing.")
    if "state" in document and document["state"] not in STATES:
        yield Problem("state", f"{brief(document['state'])} is not one of {', '.join(STATES)}.")
    for key in ("header", "files", "counts"):
        if key in document and not isinstance(document[key], dict):
            yield Problem(key, "is not a JSON object.")
    for key in ("not_seen", "faults", "unmatched"):
        items = document.get(key, [])
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            yield Problem(key, "is not a list of JSON objects.")
    for key in _WHOLE:
        if key in document and not _is_count(document[key]):
            yield Problem(key, f"{brief(document[key])} is not a count.")
    if not isinstance(document.get("format_version", ""), str):
        yield Problem("format_version", f"{brief(document['format_version'])} is not a text.")
    for key in ("started", "ended"):
        if not isinstance(document.get(key), str | None):
            yield Problem(key, f"{brief(document[key])} is neither a text nor null.")
    missing = document.get("missing", {})
    if not isinstance(missing, dict) or not all(isinstance(why, str) for why in missing.values()):
        yield Problem("missing", "is not a table of reasons.")
    if not isinstance(document.get("first_non_finite"), dict | None):
        yield Problem("first_non_finite", "is neither a JSON object nor null.")
    yield from _check_parts(document)


def _check_parts(document: dict[str, Any]) -> Iterator[Problem]:
    journal = document.get("journal")
    if journal is not None and not (isinstance(journal, dict) and _is_count(journal.get("bytes"))):
        yield Problem("journal", "is neither null nor an object with a count of bytes.")
    files = document.get("files")
    for name, entry in files.items() if isinstance(files, dict) else ():
        if not isinstance(entry, dict) or not _is_count(entry.get("bytes")):
            yield Problem(f"files.{name}", "has no count of bytes.")
        elif not isinstance(entry.get("crc32"), str):
            yield Problem(f"files.{name}", "has no crc32.")
    counts = document.get("counts")
    for key, table in counts.items() if isinstance(counts, dict) else ():
        if not isinstance(table, dict) or not all(_is_count(n) for n in table.values()):
            yield Problem(f"counts.{key}", "is not a table of counts.")
    norms = document.get("norms", [])
    if not isinstance(norms, list) or not all(_is_norm(entry) for entry in norms):
        yield Problem("norms", "is not a list of [name, norm] pairs.")


def parse_report(raw: bytes, where: str = "report.json") -> Report:
    """Read a report.json. Raises FormatError when its form is wrong."""
    document = parse_object(raw, where)
    for problem in check_report(document):
        raise FormatError(f"{where}: {problem}")
    return report_of(document)


def report_of(document: Mapping[str, Any]) -> Report:
    """Return the Report in a document that `check_report` has passed."""
    journal = document["journal"]
    return Report(
        state=document["state"],
        header=document["header"],
        files=document["files"],
        covered=None if journal is None else int(journal["bytes"]),
        counts=document["counts"],
        not_seen=tuple(document.get("not_seen", ())),
        faults=tuple(document.get("faults", ())),
        unmatched=tuple(document.get("unmatched", ())),
        records=int(document["records"]),
        tensors=int(document["tensors"]),
        tensor_files=int(document["tensor_files"]),
        norms=tuple((where, float(norm)) for where, norm in document.get("norms", ())),
        first_non_finite=document.get("first_non_finite"),
        started=document.get("started"),
        ended=document.get("ended"),
        document=document,
    )


def _is_count(x: Any) -> bool:
    if isinstance(x, bool):
        return False
    return (isinstance(x, int) or (isinstance(x, float) and x.is_integer())) and x >= 0


def _is_norm(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], int | float)
        and not isinstance(entry[1], bool)
        and abs(entry[1]) <= sys.float_info.max
    )
