"""Check and parse dump.json and debug.json, which hold the records (spec/dump.md, spec/debug.md)."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from attrs import field, frozen

from probe_format import jsonio
from probe_format.errors import DamagedError, FormatError, Problem, refuse_other_version
from probe_format.excerpts import brief, cut
from probe_format.plain_files import in_memory
from probe_format.task import DUMPING

from .form import Schema, misfits, schema_of
from .tensor_objects import VALUES, check_foreign, readable

Name = Literal["dump", "debug"]

_DATA = re.compile(rb'"data"[ \t]*:[ \t]*\{[ \t\r]*\n')
_NAME = re.compile(rb'[ \t]*"([^"\\\n]*(?:\\[^\n][^"\\\n]*)*)"[ \t]*:[ \t]*')
_RETURN, _COMMA = b"\r,"

Value = Annotated[Any, {"$ref": "#/$defs/value"}]
Values = list[Value]
Named = Mapping[str, Value]


class ForeignHeader(TypedDict, total=False):
    """Say what the top-level keys hold that msprobe writes as well."""

    task: str
    level: str
    framework: str
    dump_data_dir: str | None


class _Header(TypedDict):
    task: Annotated[str, {"enum": DUMPING}]
    framework: str
    dump_data_dir: str | None
    format_version: Annotated[
        str, {"pattern": r"^1\.[0-9]+$", "description": "1.x; a newer probe-format may read it"}
    ]
    tool: str
    checksum: NotRequired[Any]
    mindspore: NotRequired[Any]
    input_gradients: NotRequired[Literal["whole"]]
    rank: NotRequired[Any]
    step: NotRequired[Any]
    found: NotRequired[Any]
    labels: NotRequired[list[str]]
    triggered: NotRequired[Any]
    export: NotRequired[Any]
    extra_info: NotRequired[Any]


class Header(_Header):
    """Say what the top-level keys but ``data`` hold in a dump.json of Probe's."""

    level: Literal["L0", "L1", "mix", "L2"]


class DebugHeader(_Header):
    """Say what the top-level keys but ``data`` hold in a debug.json of Probe's."""

    level: Literal["debug"]


class Backward(TypedDict, total=False):
    """Say what one backward pass through a call leaves in its record."""

    input: Values
    output: Values


class Forward(TypedDict, total=False):
    """Say what a call, or its recomputation, leaves in its record."""

    input_args: Values
    input_kwargs: Named
    output: Annotated[list[Any] | Mapping[str, Any], {"$ref": "#/$defs/value"}]
    parameters: Named
    buffers: Named


class Marks(TypedDict, total=False):
    """Say what Probe adds to a record; msprobe's readers ignore it."""

    raised: str
    incomplete: bool
    recompute: Forward
    in_backward: bool
    is_recompute: bool
    label: str
    later_passes: list[Backward]
    partial: bool


_FOREIGN_HEADER = schema_of(ForeignHeader)
_HEADERS = {"dump": schema_of(Header), "debug": schema_of(DebugHeader)}
_FOREIGN_VALUE = {"$ref": "#/$defs/foreign"}
_FOREIGN_RECORD = {"dump": {"type": "object", **_FOREIGN_VALUE}, "debug": _FOREIGN_VALUE}
_ENDS = "forward, backward, parameters_grad or optimizer_grad"
#: How the name of a record ends -> what it may hold.
_RECORDS = {
    "dump": {
        r"\.forward(\.[0-9]+)?$": [schema_of(Forward), schema_of(Marks)],
        r"\.backward(\.[0-9]+)?$": [schema_of(Backward), schema_of(Marks)],
        r"\.(parameters|optimizer)_grad(\.[0-9]+)?$": [schema_of(Mapping[str, Values])],
    },
    "debug": {r"\.[0-9]+\.debug$": [schema_of(Value)]},
}


@frozen
class Document:
    """Hold one dump.json or debug.json.

    header: every top-level key but data.
    records: name -> record, whatever it holds; those of a file that Probe wrote are parsed one by one, on access.
    where: the file, for messages.
    """

    header: Mapping[str, Any]
    records: Mapping[str, Any] = field(repr=False)
    where: str = "dump.json"

    def record(self, name: str) -> Any:
        """Return one record. Raises DamagedError when its tensors are of a form that no reader can rely upon."""
        found = self.records[name]
        if not readable(found):
            for problem in check_foreign(found, (name,)):
                raise DamagedError(f"{self.where}: {problem}")
        return found

    def texts(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield the name of each record and its JSON; None for that where the file has no line for each record."""
        if not isinstance(lines := self.records, _Lines):
            return ((name, None) for name in lines)
        return ((name, lines.raw[start:stop]) for name, (start, stop) in lines.spans.items())

    def mentioning(self, word: bytes) -> Iterator[str]:
        """Yield the names of records that hold a word; of all records where the file has no line for each.

        Yield none of a file that Probe did not write.
        """
        if isinstance(lines := self.records, _Lines):
            found = lines.spans.items() if word in lines.raw else ()
            yield from (name for name, span in found if lines.raw.find(word, *span) >= 0)
        elif is_strict(self.header):
            yield from lines


@frozen
class _Lines(Mapping[str, Any]):
    """Map names to the records of a file with one record per line, each parsed on access."""

    raw: bytes
    spans: dict[str, tuple[int, int]]
    where: str

    def __getitem__(self, name: str) -> Any:
        start, stop = self.spans[name]
        try:
            with in_memory(f"{self.where}: {brief(name)}"):
                return jsonio.loads(self.raw[start:stop])
        except (ValueError, RecursionError) as error:
            why = f"the record {brief(name)} is not JSON any more ({error})"
            raise DamagedError(f"{self.where}: {why}.") from None

    def __contains__(self, name: object) -> bool:
        return name in self.spans  # Mapping's own would parse the record

    def __iter__(self) -> Iterator[str]:
        return iter(self.spans)

    def __len__(self) -> int:
        return len(self.spans)


def parse_object(raw: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object, bare NaN tokens accepted. Raises FormatError when it is anything else, or too large."""
    if not raw.strip():
        raise FormatError(
            f"{where} is empty: the run was killed, or failed to write, before anything was in it."
        )
    try:
        with in_memory(where):
            document = jsonio.loads(raw)
    except (ValueError, RecursionError) as error:
        if _is_cut(raw, error):
            raise FormatError(
                f"{where} is cut short after {len(raw)} bytes: the run was killed, or failed to write, "
                "in the middle of the file. What is missing is lost: dump that step again. (A dump by Probe "
                "has a records.journal beside it, from which 'probe recover' restores the file.)"
            ) from None
        raise FormatError(f"{where} is not JSON ({error}).") from None
    if not isinstance(document, dict):
        raise FormatError(f"{where} holds a JSON {type(document).__name__}, not an object.")
    return document


def _is_cut(raw: bytes, error: Exception) -> bool:
    if not isinstance(error, json.JSONDecodeError) or not raw.lstrip().startswith(b"{"):
        return False
    return error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")


def parse_dump(raw: bytes, where: str = "dump.json") -> Document:
    """Read a dump.json or debug.json of any msprobe or of Probe. Raises FormatError if its form is wrong, or newer."""
    with in_memory(where):
        lines = _index(raw, where)
    if lines is not None:
        refuse_other_version(lines.header["format_version"], where)
        return lines
    document = parse_object(raw, where)
    refuse_other_version(document.get("format_version"), where)
    data = document.pop("data", None)
    if not isinstance(data, dict):
        raise FormatError(
            f"{where} has no object under 'data', so it is not a dump.json. A dump.json has the keys "
            f"task, level, framework, dump_data_dir and data; this one has: {cut(', '.join(document), 200) or 'none'}."
        )
    return Document(document, data, where)


def _index(raw: bytes, where: str) -> Document | None:
    """Return the records by line, or None where the file is not laid out that way (spec/dump.md, "Layout")."""
    found = _DATA.search(raw)
    if found is None:
        return None
    try:
        header = jsonio.loads(raw[: found.start()].rstrip().removesuffix(b",") + b"}")
    except (ValueError, RecursionError):
        return None
    if not isinstance(header, dict) or "format_version" not in header:
        return None
    names, spans = list[bytes](), list[tuple[int, int]]()
    at = found.end()
    more = True
    match, find = _NAME.match, raw.find
    while more and (name := match(raw, at)) is not None:
        start = name.end()
        end = find(b"\n", start)
        end = len(raw) if end < 0 else end
        stop = end - (raw[end - 1] == _RETURN)
        more = raw[stop - 1] == _COMMA
        names.append(name[1])
        spans.append((start, stop - more))
        at = end + 1
    if b"".join(raw[at:].split()) != b"}}" or (more and spans):
        return None
    try:
        texts = jsonio.loads(b'["%b"]' % b'","'.join(names)) if names else ()
    except ValueError:
        return None
    return Document(header, _Lines(raw, dict(zip(texts, spans, strict=True)), where), where)


def is_strict(header: Mapping[str, Any]) -> bool:
    """Return whether a file claims to follow Probe's specification; those of msprobe do not."""
    return "format_version" in header


def check_dump(header: Mapping[str, Any], records: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield every fault in a dump.json: it is held to the specification where Probe wrote it."""
    return _check("dump", header, records, f"is not a record name; it ends in no {_ENDS}.")


def check_debug(header: Mapping[str, Any], records: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield every fault in a debug.json, in the same way."""
    return _check("debug", header, records, "is not the name of a saved value; 'loss.0.debug' would be.")


def _check(
    name: Name, header: Mapping[str, Any], records: Mapping[str, Any], wrong: str
) -> Iterator[Problem]:
    strict = is_strict(header)
    yield from misfits(dict(header), _HEADERS[name] if strict else _FOREIGN_HEADER)
    for record in records:
        forms = [_FOREIGN_RECORD[name]]
        if strict:
            forms = next((forms for end, forms in _RECORDS[name].items() if re.search(end, record)), [])
        if not forms:
            yield Problem(record, wrong)
        for form in forms:
            yield from misfits(records[record], form, (record,))


def schema(name: Name) -> dict[str, Any]:
    """Return the JSON Schema of a dump.json or debug.json."""
    patterns = {end: {"allOf": forms} for end, forms in _RECORDS[name].items()}
    ours = {"data": {"type": "object", "patternProperties": patterns, "additionalProperties": False}}
    foreign = {"data": {"type": "object", "additionalProperties": _FOREIGN_RECORD[name]}}
    return {
        "description": "A file with a format_version follows Probe's specification and is held to it; any other is "
        "taken for some msprobe's, of which little is promised.",
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"type": "object"}},
        "if": {"required": ["format_version"]},
        "then": _with(_HEADERS[name], ours),
        "else": _with(_FOREIGN_HEADER, foreign),
        "$defs": VALUES,
    }


def _with(schema: Schema, more: Mapping[str, Schema]) -> Schema:
    return {**schema, "properties": {**schema["properties"], **more}}
