"""Check and parse dump.json and debug.json, which hold the records (spec/dump.md, spec/debug.md)."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import field, frozen

from probe_format import jsonio
from probe_format.errors import DamagedError, FormatError, Problem
from probe_format.excerpts import brief, cut
from probe_format.plain_files import in_memory

from .tensor_objects import FLAG, TEXT, Forms, all_are, check_foreign, check_values, misfits, readable

_DATA = re.compile(rb'"data"[ \t]*:[ \t]*\{[ \t\r]*\n')
_NAME = re.compile(rb'[ \t]*("(?:[^"\\\n]|\\[^\n])*")[ \t]*:[ \t]*')
_KIND = re.compile(r"\.(?:(forward|backward)|((?:parameters|optimizer)_grad))(?:\.[0-9]+)?$")
_DEBUG = re.compile(r"\.[0-9]+\.debug$")

_LISTS = {"forward": ("input_args",), "backward": ("input", "output")}
_MARKS = dict.fromkeys(("incomplete", "in_backward", "is_recompute", "partial"), FLAG)
_MARKS |= dict.fromkeys(("raised", "label"), TEXT)
_PLACE = (lambda x: isinstance(x, str | None)), "{} is neither a path nor null."
_LABELS: Forms = {"labels": (lambda x: isinstance(x, list) and all_are(str, x), "{} is not a list of texts.")}
#: The keys of a header; those that Probe alone writes come last.
_HEADER: Forms = {**dict.fromkeys(("task", "level", "framework"), TEXT), "dump_data_dir": _PLACE}
_OWN: Forms = {**_HEADER, "format_version": TEXT, "tool": TEXT}


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

    def mentioning(self, word: bytes) -> Iterator[str]:
        """Yield the names of the records of Probe's own that may hold a word: where they have a line each, it does."""
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
        raise FormatError(f"{where} is empty: the run was killed before it wrote any record here.")
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
    """Return whether the parser failed because the text ended too early."""
    if not isinstance(error, json.JSONDecodeError) or not raw.lstrip().startswith(b"{"):
        return False
    return error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")


def parse_dump(raw: bytes, where: str = "dump.json") -> Document:
    """Read a dump.json or debug.json of any msprobe or of Probe. Raises FormatError when its form is wrong."""
    with in_memory(where):
        lines = _index(raw, where)
    if lines is not None:
        return lines
    document = parse_object(raw, where)
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
    spans: dict[str, tuple[int, int]] = {}
    at = found.end()
    more = True
    while more and (name := _NAME.match(raw, at)) is not None:
        end = raw.find(b"\n", name.end())
        end = len(raw) if end < 0 else end
        stop = end - 1 if raw[end - 1 : end] == b"\r" else end
        more = raw[stop - 1 : stop] == b","
        try:
            spans[jsonio.loads(name[1])] = (name.end(), stop - 1 if more else stop)
        except ValueError:
            return None
        at = end + 1
    if b"".join(raw[at:].split()) != b"}}" or (more and spans):
        return None
    return Document(header, _Lines(raw, spans, where), where)


def is_strict(header: Mapping[str, Any]) -> bool:
    """Return whether a file claims to follow Probe's specification; those of msprobe do not."""
    return "format_version" in header


def check_dump(header: Mapping[str, Any], records: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield every fault in a dump.json, as schema/dump.schema.json defines it: strict for Probe's files."""
    strict = is_strict(header)
    yield from _check_header(header, ("L0", "L1", "mix", "L2") if strict else ())
    yield from misfits(header, _LABELS if strict else {})
    for name in records:
        record = records[name]
        if not isinstance(record, dict):
            yield Problem(name, "is not a JSON object.")
        elif strict:
            yield from _check_record(name, record)
        else:
            yield from check_foreign(record, (name,))


def check_debug(header: Mapping[str, Any], records: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield every fault in a debug.json, as schema/debug.schema.json defines it."""
    strict = is_strict(header)
    yield from _check_header(header, ("debug",) if strict else ())
    for name in records:
        if not strict:
            yield from check_foreign(records[name], (name,))
            continue
        if not _DEBUG.search(name):
            yield Problem(name, "is not the name of a saved value; 'loss.0.debug' would be.")
        yield from check_values(records[name], (name,))


def _check_header(header: Mapping[str, Any], levels: tuple[str, ...]) -> Iterator[Problem]:
    yield from misfits(header, _OWN if levels else _HEADER)
    if not levels:
        return
    yield from (Problem(key, "is missing.") for key in _OWN if key not in header)
    for key, known in (("task", ("statistics", "tensor", "structure")), ("level", levels)):
        if isinstance(header.get(key), str) and header[key] not in known:
            yield Problem(key, f"{brief(header[key])} is not one of {', '.join(known)}.")
    version = header.get("format_version")
    if isinstance(version, str) and not re.search(r"^1\.[0-9]+$", version):
        yield Problem("format_version", f"{brief(version)} is not 1.x; a newer probe-format may read it.")


def _check_record(name: str, record: dict[str, Any]) -> Iterator[Problem]:
    kind = _KIND.search(name)
    if kind is None:
        ends = "forward, backward, parameters_grad or optimizer_grad"
        yield Problem(name, f"is not a record name; it ends in no {ends}.")
        return
    if kind[2]:
        for key, value in record.items():
            if not isinstance(value, list):
                yield Problem(f"{name}.{key}", "is not a list of gradients.")
            yield from check_values(value, (name, key))
        return
    yield from _check_parts(name, kind[1], record)
    yield from misfits(record, _MARKS, f"{name}.")
    if "recompute" in record:
        if isinstance(record["recompute"], dict):
            yield from _check_parts(f"{name}.recompute", "forward", record["recompute"])
        else:
            yield Problem(f"{name}.recompute", "is not a JSON object.")
    passes = record.get("later_passes", [])
    if not isinstance(passes, list) or not all(isinstance(again, dict) for again in passes):
        yield Problem(f"{name}.later_passes", "is not a list of JSON objects.")
        return
    for i, again in enumerate(passes):
        yield from _check_parts(f"{name}.later_passes.{i}", "backward", again)


def _check_parts(name: str, kind: str, part: dict[str, Any]) -> Iterator[Problem]:
    for key in _LISTS[kind]:
        if key in part:
            if not isinstance(part[key], list):
                yield Problem(f"{name}.{key}", "is not a list.")
            yield from check_values(part[key], (name, key))
    if kind == "backward":
        return
    if "output" in part:
        if not isinstance(part["output"], list | dict):
            yield Problem(f"{name}.output", "is neither a list nor a JSON object.")
        yield from check_values(part["output"], (name, "output"))
    for key in ("input_kwargs", "parameters"):
        if not isinstance(part.get(key, {}), dict):
            yield Problem(f"{name}.{key}", "is not a JSON object.")
            continue
        for keyword, value in part.get(key, {}).items():
            yield from check_values(value, (name, key, keyword))
