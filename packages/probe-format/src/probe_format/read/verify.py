"""Check that a dump is whole: schema, checksums, tensor files, and the journal of a killed run (spec/layout.md)."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

from attrs import frozen

from probe_format import layout
from probe_format.errors import FormatError, Problem, TooLargeError
from probe_format.excerpts import brief, cut, text
from probe_format.names import parsed
from probe_format.plain_files import is_file, read_plain
from probe_format.schema.dump import Document, check_debug, check_dump, is_strict
from probe_format.schema.report import Report

from .dump import Rank, open
from .tensor import Tensor

State = Literal["complete", "recovered", "empty", "torn", "damaged"]
STATES: tuple[State, ...] = ("complete", "recovered", "empty", "torn", "damaged")
Progress = Callable[[Rank, int, int], None]

_MOST = 50
_LONGEST = 1000
_NO_REPORT = "only dumps by Probe have a report.json"
_TOKEN = re.compile(rb"(?:^|[\[,:\s])-?(?:NaN|Infinity)(?=[\],}\s]|$)")


@frozen
class Verdict:
    """Describe the state of one rank.

    state: ``complete``; ``recovered`` (complete, made by `probe recover`); ``empty`` (the run ended before its
    first record); ``torn`` (the run was killed and the journal holds more than the files do: `probe recover`);
    ``damaged`` (see ``problems``).
    problems: one sentence each, at most 50.
    notes: remarks that are not faults.
    """

    path: Path
    step: int | None
    rank: int | None
    state: State
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def verify(path: str | Path, progress: Progress | None = None) -> tuple[Verdict, ...]:
    """Check each rank at or below ``path``. Reads every file, the tensor files included.

    progress: called with (rank, files done, files in all).
    Raises FormatError when there is no dump, TooLargeError when a file does not fit into memory.
    """
    return tuple(verify_rank(rank, progress) for rank in open(path).ranks)


def verify_rank(rank: Rank, progress: Progress | None = None) -> Verdict:
    """Check one rank."""
    notes: list[str] = []
    problems: list[str] = []
    try:
        problems.extend(islice(_problems(rank, notes, progress), _MOST + 1))
    except TooLargeError:
        raise
    except FormatError as error:  # nothing after it can be checked; earlier findings are kept
        problems.append(str(error))
    if len(problems) > _MOST:
        problems[_MOST:] = ["... and more."]
    if rank.source == "journal" and problems:
        notes.append("'probe recover' restores what the journal still holds.")
    state: State = "damaged" if problems else "complete"
    if not problems and rank.is_empty:
        state = "empty"
    elif not problems and rank.source == "journal":
        state = "torn"
    elif not problems and rank.report is not None and rank.report.state == "recovered":
        state = "recovered"
    told = (tuple(cut(each, _LONGEST) for each in several) for several in (problems, notes))
    return Verdict(rank.path, rank.step, rank.number, state, *told)


def _problems(rank: Rank, notes: list[str], progress: Progress | None) -> Iterator[str]:
    report = rank.report
    journal = rank.journal
    if journal is not None:
        if journal.state == "damaged":
            yield f"records.journal is damaged: {journal.detail}."
            return
        if not rank.is_empty:
            tail = f", and {journal.detail} were being written" if journal.detail else ""
            notes.append(f"The run did not end: {len(journal.events)} events are in the journal{tail}.")
            notes.append("'probe recover' writes the JSON files from them.")
        for document in rank.documents:  # from the journal: what recovery would write
            yield from map(str, _checked(document))
    else:
        if report is None:
            one_file = rank.file is not None and is_file(rank.path / layout.REPORT)
            why = "one file was given; its folder's report.json has them" if one_file else _NO_REPORT
            notes.append(f"No checksums: {why}.")
        else:
            yield from _checksums(rank.path, report)
            if report.state == "open":
                notes.append("The step was stopped and never ended (no step()); the files hold all of it.")
        yield from _documents(rank, report)
    for fault in rank.faults:
        where, message, count = (text(fault.get(key)) for key in ("where", "message", "count"))
        notes.append(f"{where}: {message} ({count} times)")
    notes.extend([str(rank.lost)] if rank.lost else [])
    yield from _tensor_files(rank, notes, progress)


def _checksums(folder: Path, report: Report) -> Iterator[str]:
    for name, entry in report.files.items():
        path = folder / name
        if Path(name).name != name or not is_file(path):
            yield f"{name} is missing; report.json lists it."
            continue
        raw = read_plain(path)
        if len(raw) != entry["bytes"]:
            yield f"{name} has {len(raw)} bytes; it had {entry['bytes']} when it was written."
        elif f"{crc32(raw):08x}" != entry["crc32"]:
            yield f"{name} was changed: its CRC-32 is {crc32(raw):08x}, and was {entry['crc32']}."


def _documents(rank: Rank, report: Report | None) -> Iterator[str]:
    strict = is_strict(rank.header)
    if strict and report is None and rank.file is None:
        yield "report.json is missing: without it, whether the dump is whole cannot be known."
    for document in rank.documents:
        yield from map(str, _checked(document))
    if strict:
        for name in (layout.DUMP, layout.DEBUG, layout.STACK, layout.CONSTRUCT):
            yield from _strict_json(rank.path / name)
    for record in rank.records:
        try:
            _ = record.parsed
        except FormatError:
            yield f"{brief(record.name)} is not a record name."
    yield from map(str, rank.construct.faults())
    _ = rank.stack  # raises where it cannot be read
    if strict:
        yield from _agree(rank)
    if report is not None:
        yield from _counts(rank, report)


def _checked(document: Document) -> Iterator[Problem]:
    check = check_debug if document.header.get("level") == "debug" else check_dump
    return check(document.header, document.records)


def _strict_json(path: Path) -> Iterator[str]:
    if path.is_file() and _TOKEN.search(raw := read_plain(path)):
        try:
            json.loads(raw, parse_constant=_refuse)
        except RecursionError:
            yield f"{path.name} nests too deeply."
        except ValueError as error:
            yield f"{path.name} is not strict JSON: {error}."


def _refuse(token: str) -> Any:
    raise ValueError(f"it holds the bare token {token}")


def _agree(rank: Rank) -> Iterator[str]:
    """Yield the calls that stack.json has and no other file, and the records that construct.json lacks."""
    known = set(rank.records.names) | set(rank.construct.parents)
    for names, _ in rank.stack.groups:
        for name in names:
            if name not in known:
                yield f"stack.json has {brief(name)}, which is neither a record nor a node."
    if rank.header.get("level") in ("L0", "mix") and rank.construct.parents:
        for record in rank.records:
            if parsed(record.name) is None or record.kind not in ("forward", "backward"):
                continue
            if record.name not in rank.construct:
                yield f"construct.json does not have the record {brief(record.name)}."


def _counts(rank: Rank, report: Report) -> Iterator[str]:
    tensors = _tensors(rank)
    saved = sum("data_name" in tensor.json for tensor in tensors)
    for what, said, found in (
        ("records", report.records, len(rank.records)),
        ("tensors", report.tensors, len(tensors)),
        ("tensor files", report.tensor_files, saved),
    ):
        if said != found:
            yield f"report.json counts {said} {what}; there are {found}."


def _tensors(rank: Rank) -> list[Tensor]:
    """Return the tensors of the records that can be read; `_checked` has named the others."""
    found: list[Tensor] = []
    for record in rank.records:
        with suppress(FormatError):
            found += record.tensors
    return found


def _tensor_files(rank: Rank, notes: list[str], progress: Progress | None) -> Iterator[str]:
    from .tensor_file import TensorFiles  # only here: it needs all that reads a tensor's file

    files = TensorFiles(rank.header.get("checksum") == "crc32", is_strict(rank.header))
    saved = [tensor for tensor in _tensors(rank) if tensor.json.get("data_name") is not None]
    names = {name for tensor in saved if isinstance(name := tensor.json["data_name"], str)}
    for done, tensor in enumerate(saved, start=1):
        problem = files.problem(tensor)
        if problem:
            yield f"{tensor.name}: {problem}"
        if progress is not None:
            progress(rank, done, len(saved))
    folder = rank.path / layout.TENSORS
    if rank.file is None and folder.is_dir() and not folder.is_symlink():
        there = {child.name for child in folder.iterdir() if child.suffix != ".pack"} | rank.packed.keys()
        strays = len(there - names)
        if strays:
            notes.append(f"{strays} files in dump_tensor_data belong to no record.")
