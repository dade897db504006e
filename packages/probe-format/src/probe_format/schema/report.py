"""Check and parse report.json: what a dump holds, what it lacks and why, and whether it is whole (spec/report.md)."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import field, fields, frozen

from probe_format.errors import FormatError, Problem

from .dump import parse_object
from .tensor_objects import COUNT, TEXT, Forms, all_are, misfits

STATES = ("open", "complete", "recovered")
_WHOLE = ("records", "tensors", "tensor_files")


def _norms(found: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    return tuple((where, float(norm)) for where, norm in found)


@frozen
class Report:
    """Hold a parsed report.json; the fields are its keys.

    covered: how many bytes of the journal the JSON files hold, None when there was none.
    document: all of it, with the keys that have no field here.
    """

    state: str
    header: Mapping[str, Any] = field(factory=dict)
    files: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    covered: int | None = None
    counts: Mapping[str, Mapping[str, int]] = field(factory=dict)
    not_seen: tuple[Mapping[str, Any], ...] = field(default=(), converter=tuple)
    faults: tuple[Mapping[str, Any], ...] = field(default=(), converter=tuple)
    unmatched: tuple[Mapping[str, Any], ...] = field(default=(), converter=tuple)
    records: int = field(default=0, converter=int)
    tensors: int = field(default=0, converter=int)
    tensor_files: int = field(default=0, converter=int)
    norms: tuple[tuple[str, float], ...] = field(default=(), converter=_norms)
    first_non_finite: Mapping[str, Any] | None = None
    triggers: tuple[Mapping[str, Any], ...] = field(default=(), converter=tuple)
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
    yield from misfits(document, _FORMS)
    files = document.get("files")
    for name, entry in files.items() if isinstance(files, dict) else ():
        if not isinstance(entry, dict) or not COUNT[0](entry.get("bytes")):
            yield Problem(f"files.{name}", "has no count of bytes.")
        elif not isinstance(entry.get("crc32"), str):
            yield Problem(f"files.{name}", "has no crc32.")
    counts = document.get("counts")
    for key, table in counts.items() if isinstance(counts, dict) else ():
        if not isinstance(table, dict) or not all(map(COUNT[0], table.values())):
            yield Problem(f"counts.{key}", "is not a table of counts.")


def parse_report(raw: bytes, where: str = "report.json") -> Report:
    """Read a report.json. Raises FormatError when its form is wrong."""
    document = parse_object(raw, where)
    for problem in check_report(document):
        raise FormatError(f"{where}: {problem}")
    journal = document["journal"]
    keys = {each.name for each in fields(Report)} - {"covered", "document"}
    known = {key: value for key, value in document.items() if key in keys}
    return Report(**known, covered=None if journal is None else int(journal["bytes"]), document=document)


def _is_norm(entry: Any) -> bool:
    if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)):
        return False
    norm = entry[1]
    return type(norm) in (int, float) and abs(norm) <= sys.float_info.max


def _is_trigger(entry: Any) -> bool:
    return isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("when", "why"))


_OBJECT = (lambda x: isinstance(x, dict), "is not a JSON object.")
_OBJECTS = (lambda x: isinstance(x, list) and all_are(dict, x), "is not a list of JSON objects.")
_TIME = (lambda x: isinstance(x, str | None), "{} is neither a text nor null.")
_FORMS: Forms = {
    "state": (lambda x: x in STATES, f"{{}} is not one of {', '.join(STATES)}."),
    **dict.fromkeys(("header", "files", "counts"), _OBJECT),
    **dict.fromkeys(("not_seen", "faults", "unmatched"), _OBJECTS),
    **dict.fromkeys(_WHOLE, COUNT),
    "format_version": TEXT,
    **dict.fromkeys(("started", "ended"), _TIME),
    "missing": (lambda x: isinstance(x, dict) and all_are(str, x), "is not a table of reasons."),
    "graphs": (lambda x: isinstance(x, dict) and all_are(dict, x), "is not a table of JSON objects."),
    "first_non_finite": (lambda x: isinstance(x, dict | None), "is neither a JSON object nor null."),
    "journal": (
        lambda x: x is None or (isinstance(x, dict) and COUNT[0](x.get("bytes"))),
        "is neither null nor an object with a count of bytes.",
    ),
    "triggers": (
        lambda x: isinstance(x, list) and all(map(_is_trigger, x)),
        "is not a list of objects with the texts when and why.",
    ),
    "norms": (
        lambda x: isinstance(x, list) and all(map(_is_norm, x)),
        "is not a list of [name, norm] pairs.",
    ),
}
