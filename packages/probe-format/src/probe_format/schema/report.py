"""Check and parse report.json: what a dump holds, what it lacks and why, and whether it is whole (spec/report.md)."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from attrs import field, frozen

from probe_format.errors import FormatError, Problem, refuse_other_version

from .dump import parse_object
from .form import Count, misfits, schema_of


class JsonFile(TypedDict):
    """Say what is known of one of the JSON files."""

    bytes: Count
    crc32: str


class Covered(TypedDict):
    """Say how many bytes of the journal the JSON files hold."""

    bytes: Count


class Trigger(TypedDict):
    """Say what in a step called for attention, and on which rank."""

    when: str
    why: str
    rank: NotRequired[Any]


Objects = tuple[Mapping[str, Any], ...]
Norm = Annotated[float, {"maximum": sys.float_info.max}]


def _norms(found: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    return tuple((where, float(norm)) for where, norm in found)


@frozen
class ReportKeys:
    """Hold what report.json holds, under its keys.

    journal: how many of its bytes the JSON files hold, None when there was none.
    missing: listed function or package -> why it was not patched.
    graphs: name of a compiled graph -> what its copies gave.
    norms: (record.slot, norm), largest first.
    """

    format_version: str
    state: Literal["open", "complete", "recovered"]
    header: Mapping[str, Any]
    files: Mapping[str, JsonFile]
    journal: Covered | None
    counts: Mapping[str, Mapping[str, Count]]
    records: Count = field(converter=int)
    tensors: Count = field(converter=int)
    tensor_files: Count = field(converter=int)
    not_seen: Objects = field(default=(), converter=tuple)
    missing: Mapping[str, str] = field(factory=dict)
    graphs: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    unmatched: Objects = field(default=(), converter=tuple)
    faults: Objects = field(default=(), converter=tuple)
    norms: tuple[tuple[str, Norm], ...] = field(default=(), converter=_norms)
    first_non_finite: Mapping[str, Any] | None = None
    triggers: tuple[Trigger, ...] = field(default=(), converter=tuple)
    export: Mapping[str, Any] | None = None
    started: str | None = None
    ended: str | None = None


@frozen
class Report(ReportKeys):
    """Hold a parsed report.json. document: all of it, with the keys that have no field."""

    document: Mapping[str, Any] = field(factory=dict, repr=False)

    @property
    def covered(self) -> int | None:
        """Return how many bytes of the journal the JSON files hold, None when there was none."""
        return None if self.journal is None else int(self.journal["bytes"])


SCHEMA = schema_of(ReportKeys)


def check_report(document: Any) -> Iterator[Problem]:
    """Yield every fault in the form of a report.json."""
    return misfits(document, SCHEMA)


def parse_report(raw: bytes, where: str = "report.json") -> Report:
    """Read a report.json. Raises FormatError when its form is wrong, or newer."""
    document = parse_object(raw, where)
    refuse_other_version(document.get("format_version"), where)
    for problem in check_report(document):
        raise FormatError(f"{where}: {problem}")
    return Report(
        **{key: document[key] for key in SCHEMA["properties"] if key in document}, document=document
    )
